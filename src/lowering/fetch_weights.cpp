#include "lowering/fetch_weights.h"

#include <algorithm>
#include <map>

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

// A run of nodes of one block and phase.
struct Stretch {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  BlockId block;
  Phase phase = Phase::forward;
  std::vector<ValueId> needs{};  // weights that are fetched for it
  std::size_t serves = 0;        // the stretch whose weights it uses: itself, or the recompute right before it
};

class Fetch {
 public:
  Fetch(const Graph& old, const FetchOptions& options) : old_(old), new_(old), options_(options), is_weight_(old.values.size(), false) {
    new_.nodes = {};
    for (const graph::Parameter& parameter : old.parameters) {
      is_weight_[parameter.weight.index] = true;
      new_.values[parameter.weight].tier = options.tier;
    }
    find_stretches();
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      if (graph::runs_per_micro_batch(stretches_[index].phase)) fetch_ahead(index);
      for (std::uint32_t node = stretches_[index].begin; node < stretches_[index].end; ++node) copy(index, old_.nodes[NodeId{node}]);
    }
    return std::move(new_);
  }

 private:
  void find_stretches() {
    for (std::uint32_t index = 0; index < old_.nodes.size(); ++index) {
      const Node& node = old_.nodes[NodeId{index}];
      if (stretches_.empty() || stretches_.back().block != node.block || stretches_.back().phase != node.phase) add_stretch(index, node);
      stretches_.back().end = index + 1;
      if (!graph::runs_per_micro_batch(node.phase)) continue;
      std::vector<ValueId>& needs = stretches_[stretches_.back().serves].needs;
      for (ValueId id : node.inputs) {
        if (is_weight_[id.index] && std::find(needs.begin(), needs.end(), id) == needs.end()) needs.push_back(id);
      }
    }
  }

  void add_stretch(std::uint32_t index, const Node& node) {
    const bool follows = node.phase == Phase::backward && !stretches_.empty() && stretches_.back().block == node.block &&
                         stretches_.back().phase == Phase::recompute;
    stretches_.push_back(
        {.begin = index, .end = index, .block = node.block, .phase = node.phase, .serves = stretches_.size() - (follows ? 1 : 0)});
  }

  // Whether the one is issued in a row with the other.
  bool follows(std::size_t before, std::size_t after) const {
    const Stretch& one = stretches_[before];
    const Stretch& other = stretches_[after];
    if (!graph::runs_per_micro_batch(other.phase)) return false;
    return !options_.stages || (old_.blocks[one.block].stage == old_.blocks[other.block].stage && one.phase == other.phase);
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
      for (ValueId weight : stretches_[next].needs) ask(next, weight);
    }
  }

  ValueId move(std::size_t issued, std::size_t wanted, ValueId value, Tier from, Tier to, std::string_view suffix) {
    const std::string name = fmt::format("{}.{}", new_.values[value].name, suffix);
    return new_.add_node(ops::Move{.from = from, .to = to}, {value}, stretches_[wanted].block, stretches_[issued].phase, name)[0];
  }

  void copy(std::size_t stretch, Node node) {
    if (graph::runs_per_micro_batch(node.phase)) {
      for (ValueId& id : node.inputs) {
        if (is_weight_[id.index]) id = here_.at({stretches_[stretch].serves, id.index});
      }
    }
    const NodeId id = new_.nodes.next_id();
    for (ValueId output : node.outputs) new_.values[output].producer = id;
    new_.nodes.add(std::move(node));
  }

  const Graph& old_;
  Graph new_;
  FetchOptions options_;
  std::vector<bool> is_weight_;
  std::vector<Stretch> stretches_;
  std::size_t next_near_ = 0;  // the first stretch whose weights nobody asked for
  std::size_t next_here_ = 0;
  std::map<std::pair<std::size_t, std::uint32_t>, ValueId> near_;  // (stretch, weight) -> in the host's memory
  std::map<std::pair<std::size_t, std::uint32_t>, ValueId> here_;  // (stretch, weight) -> on the device
};

}  // namespace

Graph fetch_weights(const Graph& graph, const FetchOptions& options) { return Fetch(graph, options).run(); }

}  // namespace plimsoll::lowering
