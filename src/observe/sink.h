// Where writers put their bytes. One call is one whole unit (a line, a record), which the receiver must not split:
// that is the flush policy. The composition root connects it to a file through `io`, or to the terminal.
#pragma once

#include <functional>
#include <string_view>

namespace plimsoll::observe {

using Sink = std::function<void(std::string_view)>;

}  // namespace plimsoll::observe
