// A table of numbers: what is accepted is whole rows of finite numbers, and their text is read back as the same.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "formats/number_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  formats::NumberTable table;
  try {
    table = formats::parse_numbers(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.csv");
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input || std::string_view(error.what()).empty()) std::abort();
    return 0;
  }
  if (table.rows() < 1 || table.rows() * table.columns != std::ssize(table.values)) std::abort();
  std::string text;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    for (std::int64_t column = 0; const float value : table.row(row)) {
      if (!std::isfinite(value)) std::abort();
      text += fmt::format("{}{}", column++ == 0 ? "" : ",", value);
    }
    text += '\n';
  }
  if (formats::parse_numbers(text, "again.csv").values != table.values) std::abort();
  return 0;
}
