// bf16 is an element type of its own (base/dtype.h), where a number goes to the nearest. As a form it also rounds at random.
#pragma once

#include "ops/forms/bits.h"

namespace plimsoll::ops {

// The bf16 code of a number: cut off after 16 random bits were added below. Infinities stay, and so does what is not a number.
PLIMSOLL_HOST_DEVICE inline std::uint16_t bf16_at_random(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7F800000u) != 0x7F800000u) return static_cast<std::uint16_t>((bits + random) >> 16);
  return static_cast<std::uint16_t>((bits >> 16) | ((bits & 0x7FFFFFu) != 0 ? 0x40u : 0u));
}

}  // namespace plimsoll::ops
