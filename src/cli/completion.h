// Shell completion made from the command line's own description.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace plimsoll::cli {

std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace plimsoll::cli
