// The reading half of hf_config.h. The keys are read by the families (families/file_config.h).
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "families/families.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

using base::Json;
using model::Model;

constexpr std::int64_t kMaxConfigBytes = std::int64_t{4} << 20;

}  // namespace

Json read_hf_config_json(io::FileSystem& file_system, const io::Path& folder) {
  const io::Path path = folder / "config.json";
  const auto found = file_system.status(folder);
  if (!found) base::bad_input("there is no folder '{}'; expected a Hugging Face folder, which holds config.json", folder.string());
  if (found->kind != io::EntryKind::directory)
    base::bad_input("'{}' is a file; expected a Hugging Face folder, which holds config.json", folder.string());
  if (!file_system.status(path)) base::bad_input("'{}' is no Hugging Face folder: it holds no config.json", folder.string());
  return base::parse_json(io::read_text(file_system, path, kMaxConfigBytes), path.string(), {.strict = true});
}

Model model_from_hf_config(const Json& config) {
  if (families::ConfigReader(config).find("quantization_config")) {
    base::bad_input("{}: the weights are quantized; Plimsoll trains those stored in f32, bf16, f16 or f64",
                    config.at("quantization_config").where());
  }
  const HfKind kind = hf_kind_of(config);
  const Model model = kind.files().read(kind.kind->type, config);
  if (const auto problems = families::problems(model); !problems.empty()) {
    base::bad_input("{}: this is no model: {}", config.where(), fmt::join(problems, "; "));
  }
  return model;
}

Model read_hf_config(io::FileSystem& file_system, const io::Path& folder) {
  return model_from_hf_config(read_hf_config_json(file_system, folder));
}

}  // namespace plimsoll::formats
