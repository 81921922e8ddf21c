// The same drawing as gantt_text as a picture: one self-contained SVG, panels below each other on one time scale.
#pragma once

#include <span>
#include <string>

#include "report/gantt.h"

namespace plimsoll::report {

std::string gantt_svg(std::span<const Gantt> gantts);

}  // namespace plimsoll::report
