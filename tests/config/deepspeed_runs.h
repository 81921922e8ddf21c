// Runs made of DeepSpeed's JSON, and what is said about them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/message.h"

namespace plimsoll::config {

inline Run run_of(std::string_view deepspeed, std::string_view file = "{}", const std::vector<std::string>& overrides = {}) {
  return parse_run(file, "run.json", overrides, {.name = "ds.json", .text = std::string(deepspeed)});
}

inline std::string error_of(std::string_view deepspeed, std::string_view file = "{}", const std::vector<std::string>& overrides = {}) {
  return message_of([&] { run_of(deepspeed, file, overrides); });
}

inline bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace plimsoll::config
