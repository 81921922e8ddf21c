#include "formats/hf_names.h"

#include "families/family.h"
#include "formats/hf_config_kind.h"

namespace plimsoll::formats {

HfNames hf_names(const model::Model& model, bool bare) {
  const families::Files& files = hf_files_of(model);
  families::Collector collector(model, bare ? std::string_view() : files.prefix);
  files.names(model, collector);
  return std::move(collector.names());
}

}  // namespace plimsoll::formats
