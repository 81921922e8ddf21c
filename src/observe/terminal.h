// What the output is connected to, found once by the composition root and handed on as plain data.
#pragma once

#include <string_view>

namespace plimsoll::observe {

struct Terminal {
  bool interactive = false;  // lines can be redrawn
  bool color = false;
  int columns = 80;
};

// The rules: redrawing needs a terminal that is not "dumb"; colour also needs NO_COLOR to be unset or empty.
Terminal terminal_from(bool is_tty, std::string_view no_color, std::string_view term, int columns);

// Asks the system about a descriptor (1 or 2) and the environment. What a launcher of MPI programs passes on is no terminal.
Terminal detect_terminal(int descriptor);

}  // namespace plimsoll::observe
