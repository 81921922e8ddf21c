#include "cli/run_folder.h"

#include <algorithm>

namespace plimsoll::tests {

RunFolder::RunFolder() {
  std::string text;
  for (int line = 0; line < 100; ++line) text += "the quick brown fox jumps over the lazy dog number " + std::to_string(line) + "\n";
  write("train.txt", text);
  write("valid.txt", text.substr(0, 1000));
  write("run.json", kTinyRun);
}

Ended RunFolder::plimsoll(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) const {
  return Child(plimsoll_command(arguments), path(), environment).wait();
}

std::vector<std::string> RunFolder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
    const std::string name = entry.path().lexically_relative(path()).string();
    if (!name.starts_with(".std")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> plimsoll_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{PLIMSOLL_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return lines;
}

std::vector<std::string> column(std::string_view metrics, std::string_view key) {
  std::vector<std::string> values;
  for (const std::string& line : lines_of(metrics)) {
    const base::Json parsed = base::parse_json(line, "metrics.jsonl", {.strict = true});
    const base::Json* value = parsed.find(key);
    values.push_back(value == nullptr ? "absent" : base::write_json(*value));
  }
  return values;
}

}  // namespace plimsoll::tests
