// Tables of numbers as text: a row a line, numbers between commas, and, if it likes, a first line of names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats {

struct NumberTable {
  std::string name;
  std::int64_t columns = 0;
  std::vector<float> values = {};  // row by row

  std::int64_t rows() const { return columns == 0 ? 0 : std::ssize(values) / columns; }
  std::span<const float> row(std::int64_t index) const {
    return std::span(values).subspan(static_cast<std::size_t>(index * columns), static_cast<std::size_t>(columns));
  }
};

// Bad input names the line: what is no finite number, and rows of another length than the first.
NumberTable parse_numbers(std::string_view text, std::string_view name);

}  // namespace plimsoll::formats
