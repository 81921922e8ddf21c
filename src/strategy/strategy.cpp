#include "strategy/strategy.h"

#include <algorithm>
#include <numeric>

namespace plimsoll::strategy {

bool Strategy::own_degrees() const {
  return std::any_of(stages.begin(), stages.end(), [&](const Stage& stage) {
    return (stage.data > 0 && stage.data != data) || (stage.tensor > 0 && stage.tensor != tensor);
  });
}

Strategy Strategy::at(std::int64_t pipe_place) const {
  Strategy there = *this;
  if (!own_degrees()) return there;
  const Stage& stage = stages[static_cast<std::size_t>(pipe_place)];
  if (stage.data > 0) there.data = stage.data;
  if (stage.tensor > 0) there.tensor = stage.tensor;
  // It still knows what the others have.
  for (Stage& other : there.stages) {
    if (other.data == 0) other.data = data;
    if (other.tensor == 0) other.tensor = tensor;
  }
  return there;
}

std::int64_t Strategy::ranks() const {
  if (!own_degrees()) return data * tensor * pipe;
  std::int64_t sum = 0;
  for (const Stage& stage : stages) sum += (stage.data > 0 ? stage.data : data) * (stage.tensor > 0 ? stage.tensor : tensor);
  return sum;
}

std::int64_t Strategy::turn() const {
  if (!own_degrees()) return 1;
  std::int64_t common = 1;
  for (const Stage& stage : stages) common = std::lcm(common, stage.data > 0 ? stage.data : data);
  return common;
}

std::int64_t Strategy::widest_tensor() const {
  std::int64_t widest = own_degrees() ? 1 : tensor;
  for (const Stage& stage : stages) widest = std::max(widest, stage.tensor > 0 ? stage.tensor : tensor);
  return widest;
}

}  // namespace plimsoll::strategy
