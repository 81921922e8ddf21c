#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "config/config.h"
#include "io/posix_file_system.h"

namespace plimsoll::cli {

void explain_command(const RunOptions& options) {
  io::PosixFileSystem file_system;
  const config::Run run = read_run(file_system, options);
  say_notes(run);
  if (options.json) {
    fmt::print("{}\n", base::write_json(config::explain_json(run), base::JsonLayout::pretty));
  } else {
    fmt::print("{}", config::explain(run));
  }
}

}  // namespace plimsoll::cli
