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
  if (!own_degrees()) return data * tensor * pipe * more_ranks();
  std::int64_t sum = 0;
  for (const Stage& stage : stages) sum += (stage.data > 0 ? stage.data : data) * (stage.tensor > 0 ? stage.tensor : tensor);
  return sum;
}

std::vector<AxisDegree> Strategy::degrees() const {
  std::vector<ops::AxisRow> further;
  for (const AxisDegree& each : more) further.push_back(each.row);
  std::vector<AxisDegree> all;
  for (const ops::AxisRow& row : ops::nested(further)) {
    const auto found = std::find_if(more.begin(), more.end(), [&](const AxisDegree& each) { return each.row.axis == row.axis; });
    const std::int64_t known = row.axis == ops::Axis::pipe ? pipe : row.axis == ops::Axis::data ? data : tensor;
    all.push_back({.row = row, .degree = found == more.end() ? known : found->degree});
  }
  return all;
}

std::int64_t Strategy::more_ranks() const {
  std::int64_t ranks = 1;
  for (const AxisDegree& each : more) ranks *= each.degree;
  return ranks;
}

std::int64_t Strategy::more_ranks(ops::Shares shares) const {
  std::int64_t ranks = 1;
  for (const AxisDegree& each : more) ranks *= each.row.shares == shares ? each.degree : 1;
  return ranks;
}

// A search asks millions of times, mostly for three axes.
std::int64_t Strategy::stride(const ops::Axis& axis) const {
  if (more.empty()) return axis == ops::Axis::tensor ? 1 : axis == ops::Axis::data ? tensor : data * tensor;
  std::int64_t ranks = 1;
  const std::vector<AxisDegree> all = degrees();
  for (auto inner = all.rbegin(); inner != all.rend() && inner->row.axis != axis; ++inner) ranks *= inner->degree;
  return ranks;
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
