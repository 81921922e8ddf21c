// What the lists of cases share: element types, extents at random, and the lists that have a file of their own.
#pragma once

#include <initializer_list>

#include "base/random.h"
#include "ops/build_cases.h"

namespace plimsoll::op_cases {

inline constexpr std::initializer_list<DType> kTypes{DType::f32, DType::bf16, DType::f16};
inline constexpr double kRate = 0.3;

// Extents at random, the same in every run.
class Pick {
 public:
  explicit Pick(std::string_view what) : key_(base::random_key(7, base::hash_name(what))) {}
  // In [low, high].
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    const std::uint32_t bits = base::philox({count_++, 0, 0, 0}, key_)[0];
    return low + static_cast<std::int64_t>(bits) % (high - low + 1);
  }

 private:
  base::RandomKey key_;
  std::uint32_t count_ = 0;
};

// attention_cases.cpp
void add_attention(std::vector<Case>& cases);
void add_separate_attention(std::vector<Case>& cases);
void add_cached_attention(std::vector<Case>& cases);

}  // namespace plimsoll::op_cases
