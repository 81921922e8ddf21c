// What somebody meant by an option that a command does not have: names from other tools, settings of the run file, misspellings.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace plimsoll::cli {

// "found the unknown option --max, did you mean --tokens?" `option` as it was written, with dashes.
std::string unknown_option(const CLI::App& command, const std::string& option);

}  // namespace plimsoll::cli
