// Amounts of memory: a strong type, its text form ("1.85 GiB") and the parser for what users write ("8GiB", "25MB").
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::base {

struct Bytes {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
};

constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
constexpr Bytes operator*(Bytes a, std::int64_t n) { return {a.count * n}; }

constexpr Bytes round_up(Bytes amount, Bytes alignment) {
  return {(amount.count + alignment.count - 1) / alignment.count * alignment.count};
}

std::string to_string(Bytes amount);                      // binary units, three significant digits
std::optional<Bytes> parse_bytes(std::string_view text);  // KB, MB, GB, TB (decimal), KiB, MiB, GiB, TiB, or a bare count

}  // namespace plimsoll::base
