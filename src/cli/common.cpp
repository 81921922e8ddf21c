#include "cli/common.h"

#include "config/config.h"

namespace plimsoll::cli {

config::Run read_run(io::FileSystem&, const RunOptions& options) { return config::load_run(options.file, options.overrides); }

std::string checkpoint_folder(const config::Run& run) { return run.out + "/checkpoints"; }

}  // namespace plimsoll::cli
