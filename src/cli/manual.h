// The manual page, made from the command line's own description.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace plimsoll::cli {

std::string manual_page(const CLI::App& app);

}  // namespace plimsoll::cli
