// An f32 number in two halves, for host and device alike, to the same bits.
//
// A weight in bf16 is its f32 number rounded to nearest even, and the 16 bits that this leaves out lie beside it. Together they are
// the number, but for one bit: where the lower half is exactly 0x8000, the weight may have been rounded down or up to an even one. Adam's
// second average is never negative: its sign says it (negative: down). So a split master is the f32 master to the last bit.
#pragma once

#include "ops/forms/bits.h"

namespace plimsoll::ops {

struct SplitNumber {
  std::uint16_t high;  // bf16, rounded to nearest even
  std::uint16_t low;
  bool down;  // from the middle between two
};

PLIMSOLL_HOST_DEVICE inline SplitNumber split_number(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t odd = (bits >> 16) & 1u;
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t high = nan ? (bits >> 16) | 0x40u : (bits + 0x7FFFu + odd) >> 16;
  return {static_cast<std::uint16_t>(high), static_cast<std::uint16_t>(bits), (bits & 0xFFFFu) == 0x8000u && odd == 0};
}

PLIMSOLL_HOST_DEVICE inline float joined(SplitNumber number) {
  const std::uint32_t low = number.low;
  const std::uint32_t rounded_up = (low + (number.down ? 0x7FFFu : 0x8000u)) >> 16;
  return float_of(((number.high - rounded_up) << 16) | low);
}

}  // namespace plimsoll::ops
