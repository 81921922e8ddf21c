#include "lowering/passes/fetch_weights.h"

#include <algorithm>
#include <map>

#include "graph/rewrite.h"
#include "lowering/passes/stretches.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

class Fetch {
 public:
  Fetch(const Graph& old, const FetchOptions& options) : old_(old), rewrite_(old), options_(options), is_weight_(old.values.size(), false) {
    for (const graph::Parameter& parameter : old.parameters) {
      is_weight_[parameter.weight.index] = true;
      rewrite_.to().values[parameter.weight].tier = options.tier;
    }
    find_needs();
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      if (graph::runs_per_micro_batch(stretches_[index].phase)) fetch_ahead(index);
      for (std::uint32_t node = stretches_[index].begin; node < stretches_[index].end; ++node) copy(index, old_.nodes[NodeId{node}]);
    }
    return rewrite_.take();
  }

 private:
  void find_needs() {
    stretches_ = stretches_of(old_);
    needs_.resize(stretches_.size());
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      // A block's backward pass right behind its recompute has the weights that were fetched for that.
      const bool same = index > 0 && stretch.phase == Phase::backward && stretches_[index - 1].block == stretch.block &&
                        stretches_[index - 1].phase == Phase::recompute;
      serves_.push_back(same ? index - 1 : index);
      if (!graph::runs_per_micro_batch(stretch.phase)) continue;
      std::vector<ValueId>& needs = needs_[serves_.back()];
      for (std::uint32_t node = stretch.begin; node < stretch.end; ++node) {
        for (ValueId id : old_.nodes[NodeId{node}].inputs) {
          if (is_weight_[id.index] && std::find(needs.begin(), needs.end(), id) == needs.end()) needs.push_back(id);
        }
      }
    }
  }

  bool follows(std::size_t before, std::size_t after) const {
    return in_a_row(old_, stretches_[before], stretches_[after], options_.stages);
  }

  // Before a stretch starts, asks for what stretches ahead of it need.
  void fetch_ahead(std::size_t index) {
    const auto ahead = static_cast<std::size_t>(options_.prefetch);
    if (options_.tier == Tier::disk) {
      hop(index, 2 * ahead, next_near_, [&](std::size_t wanted, ValueId weight) {
        near_[{wanted, weight.index}] = move(index, wanted, weight, Tier::disk, Tier::host, "near");
      });
    }
    hop(index, ahead, next_here_, [&](std::size_t wanted, ValueId weight) {
      const ValueId from = options_.tier == Tier::disk ? near_.at({wanted, weight.index}) : weight;
      here_[{wanted, weight.index}] = move(index, wanted, from, Tier::host, Tier::device, graph::name_of(stretches_[wanted].phase));
    });
  }

  template <typename Ask>
  void hop(std::size_t index, std::size_t ahead, std::size_t& next, const Ask& ask) {
    next = std::max(next, index);
    for (; next < stretches_.size() && next <= index + ahead && follows(index, next); ++next) {
      for (ValueId weight : needs_[next]) ask(next, weight);
    }
  }

  ValueId move(std::size_t issued, std::size_t wanted, ValueId value, Tier from, Tier to, std::string_view suffix) {
    const std::string name = fmt::format("{}.{}", rewrite_.to().values[value].name, suffix);
    return rewrite_.make_one(ops::Move{.from = from, .to = to}, {value}, {stretches_[wanted].block, stretches_[issued].phase}, name);
  }

  void copy(std::size_t stretch, Node node) {
    if (graph::runs_per_micro_batch(node.phase)) {
      for (ValueId& id : node.inputs) {
        if (is_weight_[id.index]) id = here_.at({serves_[stretch], id.index});
      }
    }
    rewrite_.keep(std::move(node));
  }

  const Graph& old_;
  graph::Rewrite rewrite_;
  FetchOptions options_;
  std::vector<bool> is_weight_;
  std::vector<Stretch> stretches_;
  std::vector<std::vector<ValueId>> needs_;  // by stretch: weights that are fetched for it
  std::vector<std::size_t> serves_;          // by stretch: the one whose weights it uses
  std::size_t next_near_ = 0;                // the first stretch whose weights nobody asked for
  std::size_t next_here_ = 0;
  std::map<std::pair<std::size_t, std::uint32_t>, ValueId> near_;  // (stretch, weight) -> in the host's memory
  std::map<std::pair<std::size_t, std::uint32_t>, ValueId> here_;  // (stretch, weight) -> on the device
};

}  // namespace

Graph fetch_weights(const Graph& graph, const FetchOptions& options) { return Fetch(graph, options).run(); }

}  // namespace plimsoll::lowering
