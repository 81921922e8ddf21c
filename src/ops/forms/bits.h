// A float as the bits that hold it, for host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace plimsoll::ops {

PLIMSOLL_HOST_DEVICE inline std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

PLIMSOLL_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

}  // namespace plimsoll::ops
