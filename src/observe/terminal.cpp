#include "observe/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace plimsoll::observe {

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Launchers of MPI programs hand their ranks a terminal of their own and pass on what is written there, whatever theirs is.
bool behind_a_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (!environment(variable).empty()) return true;
  }
  return false;
}

}  // namespace

Terminal terminal_from(bool is_tty, std::string_view no_color, std::string_view term, int columns) {
  const bool interactive = is_tty && !term.empty() && term != "dumb";
  return {.interactive = interactive, .color = interactive && no_color.empty(), .columns = columns > 0 ? columns : 80};
}

Terminal detect_terminal(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0;
  return terminal_from(::isatty(descriptor) == 1 && !behind_a_launcher(), environment("NO_COLOR"), environment("TERM"),
                       known ? size.ws_col : 0);
}

}  // namespace plimsoll::observe
