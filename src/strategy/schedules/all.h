// Every schedule, each in the file of its name: what it is, where it can be used, and how it is made. The order of a rank takes any shape
// that the row finds no reason against; callers go through `build` (table.h), which asks.
#pragma once

#include <algorithm>

#include "strategy/schedules/table.h"

namespace plimsoll::strategy::schedules {

Kind gpipe();
Kind one_f_one_b();
Kind interleaved();
Kind varuna();
Kind zb_h1();
Kind zb_h2();
Kind dualpipe();
Kind naive();
Kind pipedream();
Kind pipedream_vsync();
Kind two_buffered();

// A reason against fewer micro-batches than `least`; `what` is that number in letters.
void require_micro_batches(std::int64_t least, std::string_view what, const Shape& shape, std::vector<std::string>& reasons);

// So many pieces, or all that there are.
inline std::int64_t at_most_all(std::int64_t pieces, const Shape& shape) { return std::min(pieces, shape.micro_batches * shape.chunks); }

}  // namespace plimsoll::strategy::schedules
