// How drawings of a plan name its parts, and tint them.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace plimsoll::report {

// "activations", "parameters"
std::string_view plural_of(plan::BufferKind kind);

// The call at a moment of the program: "blocks.3.backward".
std::string label_at(const plan::Program& program, std::int32_t moment);

// With the terminal's code of a colour, such as "33", where it has colours.
std::string tinted(std::string_view text, std::string_view code, bool color);

}  // namespace plimsoll::report
