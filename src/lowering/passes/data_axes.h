// Among whom ranks that each have their own samples add up what: the data axis with its two levels, and axes beside it over which gradients
// are summed.
#pragma once

#include <vector>

#include "graph/rewrite.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

class DataAxes {
 public:
  // not_legal where a parameter that ranks have their own of is not for these axes.
  DataAxes(const graph::Graph& graph, const strategy::Strategy& strategy);

  // Whether anything is to be added up.
  bool any() const { return data_ > 1 || !further_.empty(); }
  bool several() const { return data_ > 1; }
  // Groups share tensors out; what they hold is alike.
  bool hybrid() const { return members_ < data_; }
  std::int64_t members() const { return members_; }
  // Axes with several ranks that share out the batch, or over which some gradient is summed.
  const std::vector<strategy::AxisDegree>& further() const { return further_; }

  // Each data rank has its own of the parameter.
  bool own(const graph::Parameter& parameter) const { return data_ > 1 && !parameter.shared(); }

  // Between all data ranks.
  ops::Collective over_all(ops::CollectiveKind kind, std::size_t tensors) const;
  // Between those that share tensors out.
  ops::Collective over_shards(ops::CollectiveKind kind, std::size_t tensors, bool in_place) const;
  // Between those that hold the same shards.
  ops::Collective over_groups(ops::CollectiveKind kind, std::size_t tensors) const;
  static ops::Collective over(const strategy::AxisDegree& axis, ops::CollectiveKind kind, std::size_t tensors);

  // Gradients that are complete over the data axis, or belong to one data rank, once a step over the other axes: in place.
  void sum_over_further(graph::Rewrite& rewrite, const std::vector<std::size_t>& parameters, std::vector<graph::ValueId>& gradients,
                        const graph::Site& site) const;
  // The step's sums of all ranks that share out the batch. Groups of a hybrid have the same squares, but each its own losses; so have the
  // places of an axis beside data.
  graph::ValueId merged(graph::Rewrite& rewrite, graph::ValueId scalars, bool norm, graph::Phase phase) const;
  static graph::ValueId merge(graph::Rewrite& rewrite, graph::ValueId scalars, const ops::Collective& gather, bool norm,
                              graph::Phase phase);

 private:
  void require_shared(const graph::Graph& graph) const;

  std::int64_t data_;
  std::int64_t members_;
  std::vector<strategy::AxisDegree> further_;
};

}  // namespace plimsoll::lowering
