// Lines that are stored beside the tests, one for each case, and compared with what the cases give now.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::corpus {

struct Line {
  std::string name;  // without spaces
  std::string text;
};

// Compares with the file of that name in tests/corpus: every difference by name, and how to see more of it; empty when there is none.
// With PLIMSOLL_UPDATE in the environment the file is rewritten first, with `head` as its first line.
std::string differences(const std::string& file, const std::string& head, const std::vector<Line>& lines);

}  // namespace plimsoll::corpus
