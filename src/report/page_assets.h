// The files of page/ as they were when the program was built; page_assets.cpp.in becomes the source.
#pragma once

#include <string_view>

namespace plimsoll::report {

std::string_view page_template();
std::string_view page_style();
std::string_view page_script();

}  // namespace plimsoll::report
