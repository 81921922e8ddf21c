// How 8-bit tensors are scaled, for host and device. Scales are powers of two: dividing by one loses nothing, so what is lost is the
// rounding of the 8-bit type alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/host_device.h"

namespace plimsoll::ops {

// The largest of both types is 1.75 times a power of two: 448 and 57344.
PLIMSOLL_HOST_DEVICE inline int largest_exponent(base::DType dtype) { return dtype == base::DType::f8e4m3 ? 8 : 15; }

// The least power of two with which the type holds `amax`; 1 for zero, NaN for what is not finite. Kept where its inverse is a normal
// number too.
PLIMSOLL_HOST_DEVICE inline float scale_for(float amax, base::DType dtype) {
  std::uint32_t bits = 0;
  memcpy(&bits, &amax, sizeof bits);
  bits &= 0x7FFFFFFFu;
  std::uint32_t scale = 0x3F800000u;  // 1
  if (bits >= 0x7F800000u) {
    scale = 0x7FC00000u;
  } else if (bits != 0) {
    const int above = (bits & 0x7FFFFFu) > 0x600000u ? 1 : 0;  // more than 1.75
    const int exponent = static_cast<int>(bits >> 23) - largest_exponent(dtype) + above;
    scale = static_cast<std::uint32_t>(exponent < 1 ? 1 : exponent) << 23;
  }
  float value = 0.0f;
  memcpy(&value, &scale, sizeof value);
  return value;
}

}  // namespace plimsoll::ops
