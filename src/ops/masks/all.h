// Every rule of masks. A new one is a file beside these and a row here: the table (rules.cpp) and the device's code are made from it.
#pragma once

#include "ops/masks/strided.h"

namespace plimsoll::ops {

template <typename... Rules>
struct MaskList {};

using AllMasks = MaskList<StridedMask>;

// ---- by a rule's place in the list, for code that cannot follow pointers to functions of the host

template <typename... Rules>
PLIMSOLL_HOST_DEVICE inline bool visible_by(MaskList<Rules...>, int code, const MaskNumbers& numbers, std::int64_t query, std::int64_t key,
                                            std::int64_t head) {
  bool seen = true;
  int place = 0;
  ((place++ == code && (seen = Rules::visible(numbers, query, key, head), true)) || ...);
  return seen;
}

namespace detail {

template <typename Rule>
PLIMSOLL_HOST_DEVICE inline Sight sight_on_device(const MaskNumbers& numbers, const MaskTile& tile) {
  if constexpr (requires { Rule::sight(numbers, tile); }) {
    return Rule::sight(numbers, tile);
  } else {
    return Sight::some;
  }
}

}  // namespace detail

template <typename... Rules>
PLIMSOLL_HOST_DEVICE inline Sight sight_by(MaskList<Rules...>, int code, const MaskNumbers& numbers, const MaskTile& tile) {
  Sight sight = Sight::all;
  int place = 0;
  ((place++ == code && (sight = detail::sight_on_device<Rules>(numbers, tile), true)) || ...);
  return sight;
}

}  // namespace plimsoll::ops
