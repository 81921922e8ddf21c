// The strided pattern of the Sparse Transformer: the nearest keys, and of all others every stride-th.
#pragma once

#include "ops/masks/mask.h"

namespace plimsoll::ops {

struct StridedMask {
  static constexpr std::string_view kName = "strided";
  static constexpr std::string_view kAbout = "the nearest keys, and every stride-th";
  static constexpr std::array kNumbers{
      MaskNumber{.name = "local", .about = "Keys nearer than this are seen.", .least = 0},
      MaskNumber{.name = "stride", .about = "Keys so many positions away are seen, and twice as many, and so on.", .least = 1},
  };

  PLIMSOLL_HOST_DEVICE static bool visible(const MaskNumbers& numbers, std::int64_t query, std::int64_t key, std::int64_t) {
    const std::int64_t distance = query - key;
    return (-numbers[0] < distance && distance < numbers[0]) || distance % numbers[1] == 0;
  }

  PLIMSOLL_HOST_DEVICE static Sight sight(const MaskNumbers& numbers, const MaskTile& tile) {
    const Distances distances = distances_of(tile);
    const bool all_near = -numbers[0] < distances.least && distances.most < numbers[0];
    if (all_near || numbers[1] == 1) return Sight::all;
    const bool none_near = distances.most <= -numbers[0] || numbers[0] <= distances.least;
    // The last multiple of the stride that is no larger than the largest distance.
    const std::int64_t rest = distances.most % numbers[1];
    const std::int64_t multiple = distances.most - (rest < 0 ? rest + numbers[1] : rest);
    return none_near && multiple < distances.least ? Sight::none : Sight::some;
  }
};

}  // namespace plimsoll::ops
