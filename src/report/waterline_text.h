// The waterline in a terminal: what fills a tier at its fullest moment, and how full it is over the step.
#pragma once

#include <string>

#include "plan/plan.h"

namespace plimsoll::report {

struct WaterlineStyle {
  bool color = false;
  int width = 72;
  base::Bytes capacity;           // of the device tier; zero: unknown
  base::Bytes reserve;            // what the process needs beside the arenas
  base::Bytes host_reserve = {};  // likewise on the host, where that is a tier of its own
};

std::string waterline_text(const plan::Plan& plan, std::string_view program, const WaterlineStyle& style);

}  // namespace plimsoll::report
