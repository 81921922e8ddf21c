#include "lowering/passes/data_axes.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::lowering {

DataAxes::DataAxes(const graph::Graph& graph, const strategy::Strategy& strategy) : data_(strategy.data), members_(strategy.shards()) {
  for (const strategy::AxisDegree& axis : strategy.more) {
    const auto sums = [&](const graph::Parameter& parameter) { return !parameter.frozen && parameter.sums(axis.row); };
    const bool summed = std::any_of(graph.parameters.begin(), graph.parameters.end(), sums);
    if (axis.degree > 1 && (summed || axis.row.shares == ops::Shares::batch)) further_.push_back(axis);
  }
  require_shared(graph);
}

void DataAxes::require_shared(const graph::Graph& graph) const {
  for (const graph::Parameter& parameter : graph.parameters) {
    if (own(parameter) && hybrid()) {
      base::not_legal(
          "parameter {}: each data rank has its own, but with \"zero_group\" {} the norm counts groups as alike; use \"zero_group\": 0",
          parameter.name, members_);
    }
    for (const auto& [row, degree] : further_) {
      if (parameter.frozen || row.shares != ops::Shares::batch || parameter.sums(row)) continue;
      base::not_legal(
          "parameter {}: its gradient is not summed over the axis \"{}\", whose {} ranks share out the batch; add the axis to those it is "
          "summed over",
          parameter.name, row.axis.name(), degree);
    }
  }
}

ops::Collective DataAxes::over_all(ops::CollectiveKind kind, std::size_t tensors) const {
  return {.kind = kind, .axis = ops::Axis::data, .members = data_, .tensors = static_cast<std::int64_t>(tensors)};
}

ops::Collective DataAxes::over_shards(ops::CollectiveKind kind, std::size_t tensors, bool in_place) const {
  return {.kind = kind,
          .axis = hybrid() ? ops::Axis::data_inner : ops::Axis::data,
          .members = members_,
          .tensors = static_cast<std::int64_t>(tensors),
          .in_place = in_place};
}

ops::Collective DataAxes::over_groups(ops::CollectiveKind kind, std::size_t tensors) const {
  return {.kind = kind, .axis = ops::Axis::data_outer, .members = data_ / members_, .tensors = static_cast<std::int64_t>(tensors)};
}

ops::Collective DataAxes::over(const strategy::AxisDegree& axis, ops::CollectiveKind kind, std::size_t tensors) {
  return {.kind = kind, .axis = axis.row.axis, .members = axis.degree, .tensors = static_cast<std::int64_t>(tensors)};
}

void DataAxes::sum_over_further(graph::Rewrite& rewrite, const std::vector<std::size_t>& parameters, std::vector<graph::ValueId>& gradients,
                                const graph::Site& site) const {
  for (const strategy::AxisDegree& axis : further_) {
    std::vector<std::size_t> which;
    std::vector<graph::ValueId> given;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      if (!rewrite.from().parameters[parameters[index]].sums(axis.row)) continue;
      which.push_back(index);
      given.push_back(gradients[index]);
    }
    if (given.empty()) continue;
    const std::vector<graph::ValueId> made =
        rewrite.make(over(axis, ops::CollectiveKind::all_reduce, given.size()), given, site, "grad.over");
    for (std::size_t index = 0; index < made.size(); ++index) {
      const std::string& name = rewrite.from().parameters[parameters[which[index]]].name;
      rewrite.to().values[made[index]].name = fmt::format("grad.{}.{}", name, axis.row.axis.name());
      gradients[which[index]] = made[index];
    }
  }
}

graph::ValueId DataAxes::merged(graph::Rewrite& rewrite, graph::ValueId scalars, bool norm, graph::Phase phase) const {
  constexpr auto kGather = ops::CollectiveKind::all_gather;
  if (norm && hybrid()) {
    scalars = merge(rewrite, scalars, over_shards(kGather, 1, false), true, phase);
    scalars = merge(rewrite, scalars, over_groups(kGather, 1), false, phase);
  } else if (several()) {
    scalars = merge(rewrite, scalars, over_all(kGather, 1), norm, phase);
  }
  for (const strategy::AxisDegree& axis : further_) {
    if (axis.row.shares == ops::Shares::batch) scalars = merge(rewrite, scalars, over(axis, kGather, 1), false, phase);
  }
  return scalars;
}

graph::ValueId DataAxes::merge(graph::Rewrite& rewrite, graph::ValueId scalars, const ops::Collective& gather, bool norm,
                               graph::Phase phase) {
  const graph::Site site{.block = graph::BlockId{0}, .phase = phase};
  const graph::ValueId all = rewrite.make_one(gather, {scalars}, site, "scalars.everybody");
  return rewrite.make_one(ops::MergeScalars{.members = gather.members, .norm = norm}, {scalars, all}, site, "scalars.merged");
}

}  // namespace plimsoll::lowering
