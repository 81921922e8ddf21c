// Words beside the work. Where they find nobody (a closed stream, a log on a full disk) the work goes on, and an error keeps its exit code.
// A command whose words are its result writes them with fmt::print, which fails.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace plimsoll::cli {

// On the error stream, behind what was shown before: in a log of both streams the error is the last line.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// On the output.
template <typename... Arguments>
void show(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace plimsoll::cli
