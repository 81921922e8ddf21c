// What whole attention cannot reach cheaply: dropout words beyond 2^32 counters.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/random.h"
#include "kernels/cpu/attention_tiles.h"

namespace plimsoll::kernels::cpu::attention {
namespace {

TEST(AttentionTiles, DropoutFactorsFollowTheCounters) {
  DropoutTile dropout{.key = {11, 22}, .sample = 33, .step = 44, .last_dropped = 1u << 30, .factor = 1.5f};
  auto* keep = static_cast<float*>(std::aligned_alloc(64, sizeof(float) * kKeepRows * kTileQueries));
  for (std::uint64_t first : {0ull, 5ull, (1ull << 34) - 130, (1ull << 34) - 7}) {
    for (std::uint64_t stride : {1024ull, 77ull, 3ull}) {
      dropout.first_element = first;
      dropout.query_stride = stride;
      tile_ops().draw_keep(dropout, kTileQueries, kTileKeys, keep);
      for (int i = 0; i < kTileQueries; ++i) {
        for (int j = 0; j < kTileKeys; ++j) {
          const std::uint64_t element = first + static_cast<std::uint64_t>(i) * stride + static_cast<std::uint64_t>(j);
          const std::uint64_t block = element / 4;
          const auto words = base::philox({static_cast<std::uint32_t>(block), 33, 44, static_cast<std::uint32_t>(block >> 32)}, {11, 22});
          ASSERT_EQ(keep[j * kTileQueries + i], words[element % 4] > dropout.last_dropped ? 1.5f : 0.0f) << first << " " << stride;
        }
      }
    }
  }
  std::free(keep);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::attention
