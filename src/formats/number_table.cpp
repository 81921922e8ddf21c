#include "formats/number_table.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace plimsoll::formats {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<float> number_in(std::string_view cell) {
  float value = 0.0f;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool whole = error == std::errc{} && end == cell.data() + cell.size() && std::isfinite(value);
  return whole ? std::optional(value) : std::nullopt;
}

// Where a cell ends that begins at `from`.
std::size_t end_of_cell(std::string_view line, std::size_t from) { return std::min(line.find(',', from), line.size()); }

}  // namespace

NumberTable parse_numbers(std::string_view text, std::string_view name) {
  NumberTable table{.name = std::string(name)};
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    if (table.values.empty() && number == 1 && !number_in(trimmed(line.substr(0, end_of_cell(line, 0))))) continue;  // names
    std::int64_t columns = 0;
    for (std::size_t from = 0; from <= line.size(); ++columns) {
      const std::string_view cell = trimmed(line.substr(from, end_of_cell(line, from) - from));
      const std::optional<float> value = number_in(cell);
      if (!value) base::bad_input("{}:{}: found \"{}\", expected a finite number", name, number, cell);
      table.values.push_back(*value);
      from = end_of_cell(line, from) + 1;
    }
    if (table.columns == 0) table.columns = columns;
    if (columns != table.columns)
      base::bad_input("{}:{}: found {} numbers, expected {} as in the first row", name, number, columns, table.columns);
  }
  if (table.values.empty()) base::bad_input("{}: found no row of numbers", name);
  return table;
}

}  // namespace plimsoll::formats
