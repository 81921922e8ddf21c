#include "corpus/stored.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plimsoll::corpus {

namespace {

constexpr std::size_t kShown = 20;

std::map<std::string, std::string> read(const std::string& path) {
  std::map<std::string, std::string> stored;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t space = line.find(' ');
    stored[line.substr(0, space)] = line.substr(space + 1);
  }
  return stored;
}

void write(const std::string& path, const std::string& head, const std::vector<Line>& lines) {
  std::ofstream file(path);
  file << "# " << head << "\n";
  for (const Line& line : lines) file << line.name << " " << line.text << "\n";
}

}  // namespace

std::string differences(const std::string& file, const std::string& head, const std::vector<Line>& lines) {
  const std::string path = fmt::format("{}/tests/corpus/{}", PLIMSOLL_SOURCE_DIR, file);
  if (std::getenv("PLIMSOLL_UPDATE") != nullptr) write(path, head, lines);
  std::map<std::string, std::string> stored = read(path);
  std::vector<std::string> found;
  for (const Line& line : lines) {
    const auto before = stored.find(line.name);
    if (before == stored.end()) {
      found.push_back(fmt::format("{}\n  is new: {}", line.name, line.text));
      continue;
    }
    if (before->second != line.text) found.push_back(fmt::format("{}\n  was {}\n  is  {}", line.name, before->second, line.text));
    stored.erase(before);
  }
  for (const auto& [name, text] : stored) found.push_back(fmt::format("{}\n  is gone, was {}", name, text));
  if (found.empty()) return "";
  const std::size_t left_out = found.size() - std::min(found.size(), kShown);
  found.resize(found.size() - left_out);
  return fmt::format(
      "{} of {} cases differ from tests/corpus/{}:\n{}\n{}"
      "What changed in the plans since a commit: ./dev corpus --diff COMMIT. Where the change is wanted: ./dev corpus --update\n",
      found.size() + left_out, lines.size(), file, fmt::join(found, "\n"), left_out > 0 ? fmt::format("and {} more\n", left_out) : "");
}

}  // namespace plimsoll::corpus
