// What a rank sends to others in a run of a program, by kind and axis: from the closed forms of a ring, so that nothing need run.
#pragma once

#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

struct Traffic {
  ops::Axis axis = ops::Axis::data;
  std::string_view kind;   // of the collective, or "message"
  std::int64_t calls = 0;  // that the rank takes part in
  Bytes bytes{};           // that it sends
};

// Bytes that the member at `place` sends of one tensor of a collective: 2 (n-1)/n of an all-reduce's, (n-1)/n of what a
// reduce-scatter or an all-to-all takes or an all-gather gives.
std::int64_t sent_bytes(const ops::Collective& op, const TensorType& given, const TensorType& made, std::int64_t place);
std::int64_t sent_bytes(const Collective& collective, std::int64_t place);
std::int64_t sent_bytes(const Message& message);

// One entry for each kind on each axis, largest first.
std::vector<Traffic> traffic_of(const Plan& plan, const Program& program, std::int32_t rank);

}  // namespace plimsoll::plan
