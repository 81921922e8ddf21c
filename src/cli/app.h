// The command line as CLI11 sees it; also the source of completion scripts and the manual page.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

namespace plimsoll::cli {

// Runs the chosen command while it parses.
std::unique_ptr<CLI::App> make_app();

}  // namespace plimsoll::cli
