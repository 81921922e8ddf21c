#include "cli/common.h"

#include "config/config.h"
#include "formats/hf_directory.h"
#include "io/files.h"

namespace plimsoll::cli {

namespace {

constexpr std::int64_t kLargestRunFile = std::int64_t{16} << 20;

}  // namespace

config::Run read_run(io::FileSystem& file_system, const RunOptions& options) {
  config::Run run = config::parse_run(io::read_text(file_system, options.file, kLargestRunFile), options.file, options.overrides);
  if (!run.model_path.empty()) config::resolve_model(run, formats::HfDirectory::open(file_system, run.model_path).model());
  return run;
}

std::string checkpoint_folder(const config::Run& run) { return run.out + "/checkpoints"; }

}  // namespace plimsoll::cli
