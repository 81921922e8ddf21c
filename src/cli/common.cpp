#include "cli/common.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/config.h"
#include "formats/hf_directory.h"
#include "io/files.h"

namespace plimsoll::cli {

namespace {

constexpr std::int64_t kLargestRunFile = std::int64_t{16} << 20;

std::string run_text(io::FileSystem& file_system, const std::string& path, std::string_view expected) {
  try {
    return io::read_text(file_system, path, kLargestRunFile);
  } catch (const base::Error& error) {
    base::fail(error.kind(), "{}; expected {}", error.what(), expected);
  }
}

}  // namespace

config::Run read_run(io::FileSystem& file_system, const RunOptions& options) {
  config::NamedText deepspeed{.name = options.deepspeed, .text = ""};
  if (!deepspeed.name.empty()) deepspeed.text = run_text(file_system, deepspeed.name, "a DeepSpeed configuration (see docs/deepspeed.md)");
  config::Run run = config::parse_run(run_text(file_system, options.file, "a run file (see docs/run-file.md)"), options.file,
                                      options.overrides, deepspeed);
  if (const std::string warning = config::deepspeed_warning(run); !warning.empty()) fmt::print(stderr, "plimsoll: {}", warning);
  if (!run.model_path.empty()) config::resolve_model(run, formats::HfDirectory::open(file_system, run.model_path).model());
  return run;
}

std::string checkpoint_folder(const config::Run& run) { return run.out + "/checkpoints"; }

}  // namespace plimsoll::cli
