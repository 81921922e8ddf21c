// What the headers of operators share. An operator is a struct of attributes in the header of its family (linear.h, norm.h, ...), which
// says what it computes; kName and fields() give printing, parsing and hashing once for all (catalogue.cpp).
//
// Conventions. Shapes: B samples, T positions, C width, H query heads, G key-value heads, D head size, V vocabulary,
// F inner width; rows = B*T. Matrices are row-major, weights (out, in). `packed` (B, T, (H+2G)*D) holds, for each
// key-value head g in turn, its H/G query heads, its key and its value: a split of the last dim by groups is
// contiguous, which is what tensor parallelism needs.
// `scalars` is the StepScalars block. An operator with `accumulate` takes, after its other inputs, the present value
// of each gradient it adds to, and its outputs overwrite them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "ops/axes.h"

namespace plimsoll::ops {

// Where memory is. Where the device is the processor, its memory and the host's are two arenas of the same.
enum class Tier : std::uint8_t { device, host, disk };

enum class CollectiveKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, reduce, broadcast, all_to_all };
inline constexpr std::size_t kCollectiveKinds = 6;

enum class ActivationKind : std::uint8_t { none, gelu_tanh, gelu_erf, relu, silu };
enum class NormKind : std::uint8_t { layer, rms };

// An id that is valid, but belongs to another rank's part of the table.
inline constexpr std::int32_t kElsewhere = 0x7FFFFFFF;

#define PLIMSOLL_OP(NAME)                         \
  static constexpr std::string_view kName = NAME; \
  template <typename Self, typename Visit>        \
  static void fields([[maybe_unused]] Self& self, [[maybe_unused]] Visit&& visit)

// How query, key and value heads lie in a packed row.
struct Heads {
  std::int64_t query = 1;
  std::int64_t kv = 1;
  std::int64_t dim = 64;

  std::int64_t per_group() const { return query / kv; }
  std::int64_t packed_width() const { return (query + 2 * kv) * dim; }
  std::int64_t query_offset(std::int64_t head) const { return ((head / per_group()) * (per_group() + 2) + head % per_group()) * dim; }
  std::int64_t key_offset(std::int64_t kv_head) const { return (kv_head * (per_group() + 2) + per_group()) * dim; }
  std::int64_t value_offset(std::int64_t kv_head) const { return key_offset(kv_head) + dim; }
  bool operator==(const Heads&) const = default;
};

}  // namespace plimsoll::ops
