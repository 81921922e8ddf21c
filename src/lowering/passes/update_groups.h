// What an update that is made elsewhere is divided into: parts of parameters, and groups of them that are under way together.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/rewrite.h"

namespace plimsoll::lowering {

// Parts of a tensor begin at multiples of so many elements: in every element type, whole blocks of the disk tier.
inline constexpr std::int64_t kPartUnit = std::int64_t{1} << 19;

// The update of elements [first, first + count) of a parameter.
struct UpdatePart {
  graph::Node node;  // of the whole parameter
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool whole = true;
  std::vector<graph::ValueId> home{};  // master and states where they live
  graph::ValueId gradient{};           // in the host's memory
  graph::ValueId prelude{};            // likewise; invalid where the update has none
  std::vector<graph::ValueId> near{};  // master and states in the host's memory
};

// What is under way together.
struct UpdateGroup {
  graph::Site place;
  std::vector<UpdatePart> parts{};
  std::vector<graph::Node> after{};  // collectives
  std::int64_t bytes = 0;
};

}  // namespace plimsoll::lowering
