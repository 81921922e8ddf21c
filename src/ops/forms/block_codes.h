// What forms with a scale for each block of elements have in common, for host and device alike, to the same bits.
//
// A row of elements (the last dim) is stored as records. A record holds the codes of `Codes::kBlock` neighbours and, behind them, their
// scale in bf16; the last record of a row is as long as the others and has zeros where there are no elements. Codes and scale lie
// together, so that a part of a tensor is one run of bytes wherever it is cut between records: a shard, a message, a piece of a file.
//
// A block's scale is its largest magnitude over the largest code, rounded to bf16; codes are elements over scale, both divisions in f32.
// The 8 bits of such a scale and those of a code fit f32, so a decoded element is exact, and encoding what was decoded gives the same
// record. A scale is NaN where an element is not finite, and so is then the whole block.
#pragma once

#include <cstdint>

#include "ops/forms/bits.h"

namespace plimsoll::ops {

// How the rest behind a code is rounded.
struct ToNearest {  // ties to even
  // The nearest integer to a number below 2^22, as the low bits of the result.
  PLIMSOLL_HOST_DEVICE static std::uint32_t integer(float value, int) { return bits_of(value + 0x1.8p23f); }
  // Bits of which the lower `kDropped` will be cut off.
  template <int kDropped>
  PLIMSOLL_HOST_DEVICE static std::uint32_t cut(std::uint32_t bits, int) {
    return bits + ((1u << (kDropped - 1)) - 1) + ((bits >> kDropped) & 1u);
  }
};

struct AtRandom {
  const std::uint32_t* random;  // 16 bits for each element of the block

  // Its lower neighbour among the integers or the upper one.
  PLIMSOLL_HOST_DEVICE std::uint32_t integer(float value, int element) const {
    const float moved = value + static_cast<float>(random[element]) * 0x1p-16f;
    const auto cut = static_cast<std::int32_t>(moved);
    return static_cast<std::uint32_t>(cut - (moved < static_cast<float>(cut) ? 1 : 0));
  }
  template <int kDropped>
  PLIMSOLL_HOST_DEVICE std::uint32_t cut(std::uint32_t bits, int element) const {
    static_assert(kDropped >= 16);
    return bits + (random[element] << (kDropped - 16));
  }
};

// A magnitude over its scale, where code 0 stands for 0 whatever the scale.
PLIMSOLL_HOST_DEVICE inline float over_scale(float value, float scale, float largest) {
  const float ratio = value / (scale == 0.0f ? 1.0f : scale);
  // Written so that what is not a number becomes the largest code.
  const float below = ratio < largest ? ratio : largest;
  return below > -largest ? below : -largest;
}

// `Codes` is one of int8.h, fp8.h, int4.h:
//   kName     of the form
//   kBlock    elements of a record: a power of two that divides kMostBlock
//   kBits     of a code: 8 or 4
//   kLargest  the largest magnitude of a code
//   code(ratio, rounding, element), value(code)
template <typename Codes>
struct BlockForm {
  static constexpr int kBlock = Codes::kBlock;
  static constexpr int kPerByte = 8 / Codes::kBits;
  static constexpr int kCodeBytes = kBlock / kPerByte;
  static constexpr int kRecord = kCodeBytes + 2;

  // The code of the scale, from the bits of the largest magnitude.
  PLIMSOLL_HOST_DEVICE static std::uint32_t scale_code(std::uint32_t largest) {
    const std::uint32_t bits = bits_of(float_of(largest) / Codes::kLargest);
    const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return largest >= 0x7F800000u ? 0x7FC0u : rounded;
  }

  PLIMSOLL_HOST_DEVICE static float scale_of(const std::uint8_t* record) {
    return float_of(static_cast<std::uint32_t>(record[kCodeBytes]) << 16 | static_cast<std::uint32_t>(record[kCodeBytes + 1]) << 24);
  }
  PLIMSOLL_HOST_DEVICE static void put_scale(std::uint8_t* record, std::uint32_t code) {
    record[kCodeBytes] = static_cast<std::uint8_t>(code);
    record[kCodeBytes + 1] = static_cast<std::uint8_t>(code >> 8);
  }

  // The byte of kPerByte elements, of which `element` is the first.
  template <typename Rounding>
  PLIMSOLL_HOST_DEVICE static std::uint8_t byte_of(const float* values, int element, float scale, const Rounding& rounding) {
    std::uint32_t codes = 0;
    for (int part = 0; part < kPerByte; ++part) {
      const float ratio = over_scale(values[part], scale, Codes::kLargest);
      codes |= Codes::code(ratio, rounding, element + part) << (part * Codes::kBits);
    }
    return static_cast<std::uint8_t>(codes);
  }

  PLIMSOLL_HOST_DEVICE static float value_at(const std::uint8_t* record, int element, float scale) {
    const std::uint32_t byte = record[element / kPerByte];
    return Codes::value((byte >> (element % kPerByte * Codes::kBits)) & ((1u << Codes::kBits) - 1)) * scale;
  }

  // A whole block of elements to a record.
  template <typename Rounding = ToNearest>
  PLIMSOLL_HOST_DEVICE static void encode(const float* __restrict values, std::uint8_t* __restrict record, const Rounding& rounding = {}) {
    std::uint32_t largest = 0;
    for (int element = 0; element < kBlock; ++element) {
      const std::uint32_t magnitude = bits_of(values[element]) & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const std::uint32_t scale = scale_code(largest);
    for (int byte = 0; byte < kCodeBytes; ++byte)
      record[byte] = byte_of(values + byte * kPerByte, byte * kPerByte, float_of(scale << 16), rounding);
    put_scale(record, scale);
  }

  PLIMSOLL_HOST_DEVICE static void decode(const std::uint8_t* __restrict record, float* __restrict values) {
    const float scale = scale_of(record);
    for (int element = 0; element < kBlock; ++element) values[element] = value_at(record, element, scale);
  }
};

}  // namespace plimsoll::ops
