// How drawings of a plan name its parts.
#pragma once

#include <string_view>

#include "plan/plan.h"

namespace plimsoll::report {

// "activations", "parameters"
std::string_view plural_of(plan::BufferKind kind);

// The call at a moment of the program: "blocks.3.backward".
std::string_view label_at(const plan::Program& program, std::int32_t moment);

}  // namespace plimsoll::report
