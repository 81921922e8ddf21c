#include "train/session/low_halves.h"

#include <cmath>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/forms/split.h"

namespace plimsoll::train {

namespace {

// The sign of an average says which way its weight was rounded. Few are ever asked for.
void put_sign(const Buffers& buffers, const std::string& v, std::int64_t element, bool negative) {
  const std::int64_t size = base::size_of(buffers.buffer(v).type.dtype);
  std::byte last{};  // of a little-endian float: the one with the sign
  const std::int64_t at = element * size + size - 1;
  buffers.read(v, at, {&last, 1});
  const std::byte wanted = negative ? last | std::byte{0x80} : last & std::byte{0x7F};
  if (wanted != last) buffers.write(v, at, {&wanted, 1});
}

}  // namespace

void put_low_halves(const Buffers& buffers, const LowBuffers& to, std::int64_t first, std::span<const float> values) {
  std::vector<std::uint16_t> low;
  low.reserve(values.size());
  for (std::size_t index = 0; index < values.size(); ++index) {
    const ops::SplitNumber number = ops::split_number(values[index]);
    low.push_back(number.low);
    if (number.low == 0x8000u) put_sign(buffers, to.v, first + static_cast<std::int64_t>(index), number.down);
  }
  buffers.write(to.low, first * static_cast<std::int64_t>(sizeof(std::uint16_t)), std::as_bytes(std::span(low)));
}

void join_low_halves(std::span<float> weights, std::span<const float> low, std::span<const float> v) {
  PLIMSOLL_CHECK(weights.size() == low.size() && weights.size() == v.size(), "{} weights, {} lower halves, {} averages", weights.size(),
                 low.size(), v.size());
  for (std::size_t index = 0; index < weights.size(); ++index) {
    weights[index] = ops::joined(
        {.high = base::bf16_from_f32(weights[index]), .low = static_cast<std::uint16_t>(low[index]), .down = std::signbit(v[index])});
  }
}

}  // namespace plimsoll::train
