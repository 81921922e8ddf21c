#include "lowering/passes/store_activations.h"

#include <algorithm>
#include <map>

#include "graph/rewrite.h"
#include "graph/scalar_chains.h"
#include "lowering/passes/block_chain.h"
#include "lowering/passes/stretches.h"
#include "lowering/passes/tensor_copies.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

struct LeavingActivation {
  ValueId value;
  std::size_t made = 0;    // the stretch that makes it
  std::size_t wanted = 0;  // the first stretch that reads it again
  ValueId gone{};          // in the slower tier
  ValueId near{};          // on its way back, in the host's memory
  ValueId back{};          // on the device again
};

class ActivationStore {
 public:
  ActivationStore(const Graph& old, const StoreOptions& options)
      : old_(old), chains_(old), rewrite_(old), options_(options), base_(old.values.size()) {
    for (std::uint32_t index = 0; index < old.values.size(); ++index) base_[index] = ValueId{index};
    for (std::uint32_t index = 0; index < old.nodes.size(); ++index) {
      const Node& node = old.nodes[NodeId{index}];
      if (ops::is_view(node.op)) base_[node.outputs[0].index] = base_[node.inputs[0].index];
    }
    stretches_ = stretches_of(old);
    if (options.among) same_ = same_on_tensor_ranks(old);
    find_leaving();
  }

  Graph run() {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      if (graph::runs_per_micro_batch(stretches_[index].phase)) bring_back(index);
      for (std::uint32_t node = stretches_[index].begin; node < stretches_[index].end; ++node)
        copy(stretches_[index], old_.nodes[NodeId{node}]);
      send(index);
    }
    return rewrite_.take();
  }

 private:
  std::size_t hops() const { return options_.tier == Tier::disk ? 2 : 1; }

  // ---- what leaves

  void find_leaving() {
    constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
    std::vector<std::size_t> made(old_.values.size(), kNobody);
    std::vector<std::size_t> used(old_.values.size(), 0);  // last, in the forward pass
    std::vector<std::size_t> wanted(old_.values.size(), kNobody);
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
      const Stretch& stretch = stretches_[index];
      for (std::uint32_t at = stretch.begin; at < stretch.end; ++at) {
        const Node& node = old_.nodes[NodeId{at}];
        for (ValueId id : node.inputs) {
          const std::uint32_t base = base_[id.index].index;
          if (stretch.phase == Phase::forward && !ops::is_view(node.op)) used[base] = index;
          if (goes_back(stretch.phase) && wanted[base] == kNobody) wanted[base] = index;
        }
        if (stretch.phase != Phase::forward || ops::is_view(node.op)) continue;
        for (ValueId id : node.outputs) made[id.index] = index;
      }
    }
    const std::set<ValueId> gradients = weight_gradients(old_);
    std::int64_t all = 0;
    for (std::size_t stretch = 0; stretch < stretches_.size(); ++stretch) {
      for (std::uint32_t at = stretches_[stretch].begin; at < stretches_[stretch].end; ++at) {
        for (ValueId id : old_.nodes[NodeId{at}].outputs) {
          if (made[id.index] != stretch || wanted[id.index] == kNobody || !may_leave(id, gradients)) continue;
          // What no other stretch reads may be memory of one call, which has no parts.
          if (options_.among && (!can_be_shared(id) || used[id.index] <= stretch)) continue;
          all += old_.values[id].type.bytes();
          const bool chosen = !options_.blocks || options_.blocks->contains(stretches_[stretch].block);
          const bool worth =
              wanted[id.index] > std::max(stretch, used[id.index]) + 2 * hops() * static_cast<std::size_t>(options_.prefetch);
          if (chosen && worth) leaving_.push_back({.value = id, .made = stretch, .wanted = wanted[id.index]});
        }
      }
    }
    if (!options_.blocks) keep_share(all);
    for (std::size_t index = 0; index < leaving_.size(); ++index) leaving_of_[leaving_[index].value.index] = index;
  }

  static bool goes_back(Phase phase) { return graph::runs_per_micro_batch(phase) && phase != Phase::forward; }

  bool may_leave(ValueId id, const std::set<ValueId>& gradients) const {
    const graph::Value& value = old_.values[id];
    const bool result = std::find(old_.results.begin(), old_.results.end(), id) != old_.results.end();
    return !result && !value.all_micro_batches && !chains_.has(id) && !gradients.contains(id) && !is_in_place(id);
  }

  bool can_be_shared(ValueId id) const { return same_[id.index] && old_.values[id].type.shape.elements() % options_.among->members == 0; }

  // It lies in the memory of something else that is computed. Columns put together are one value, which only the last of them is.
  bool is_in_place(ValueId id) const {
    const Node& node = old_.nodes[old_.values[id].producer];
    if (std::holds_alternative<ops::PutColumns>(node.op)) return false;
    const std::vector<ops::Alias> aliases = ops::aliases_of(node.op);
    return std::any_of(aliases.begin(), aliases.end(), [&](const ops::Alias& alias) {
      return alias.required && node.outputs[static_cast<std::size_t>(alias.output)] == id;
    });
  }

  void keep_share(std::int64_t all) {
    double left = options_.share * static_cast<double>(all);
    std::size_t count = 0;
    while (count < leaving_.size() && left > 0.0) left -= static_cast<double>(old_.values[leaving_[count++].value].type.bytes());
    leaving_.resize(count);
  }

  // ---- moves

  ValueId move(ValueId value, Tier from, Tier to, BlockId block, Phase phase, const std::string& name) {
    return rewrite_.make_one(ops::Move{.from = from, .to = to}, {value}, {block, phase}, name);
  }

  void send(std::size_t stretch) {
    const Stretch& here = stretches_[stretch];
    const auto each = [&](const auto& visit) {
      for (LeavingActivation& leaving : leaving_) {
        if (leaving.made == stretch) visit(leaving, old_.values[leaving.value].name);
      }
    };
    each([&](LeavingActivation& leaving, const std::string& name) {
      if (options_.among) {
        leaving.gone = move(own_part(leaving, here), Tier::device, Tier::device, here.block, here.phase, name + ".own");
      } else {
        leaving.gone = move(leaving.value, Tier::device, Tier::host, here.block, here.phase, name + ".away");
      }
    });
    if (options_.tier != Tier::disk) return;
    each([&](LeavingActivation& leaving, const std::string& name) {
      leaving.gone = move(leaving.gone, Tier::host, Tier::disk, here.block, here.phase, name + ".on_disk");
    });
  }

  ValueId own_part(const LeavingActivation& leaving, const Stretch& here) {
    const std::int64_t count = old_.values[leaving.value].type.shape.elements() / options_.among->members;
    const ops::Slice part{.first = count * options_.among->place, .count = count};
    return rewrite_.make_one(part, {leaving.value}, {here.block, here.phase}, old_.values[leaving.value].name + ".part");
  }

  ValueId gathered(const LeavingActivation& leaving, const Stretch& wanted, Phase phase, const std::string& name) {
    const ops::Collective gather{
        .kind = ops::CollectiveKind::all_gather, .axis = ops::Axis::tensor, .members = options_.among->members, .tensors = 1};
    const ValueId flat = rewrite_.make_one(gather, {leaving.gone}, {wanted.block, phase}, name + ".parts");
    return rewrite_.make_one(ops::View{.shape = old_.values[leaving.value].type.shape}, {flat}, {wanted.block, phase}, name + ".back");
  }

  bool follows(std::size_t before, std::size_t after) const {
    return in_a_row(old_, stretches_[before], stretches_[after], options_.stages);
  }

  void bring_back(std::size_t index) {
    const auto ahead = static_cast<std::size_t>(options_.prefetch);
    if (options_.tier == Tier::disk) {
      hop(index, 2 * ahead, next_near_, [&](LeavingActivation& leaving, const Stretch& wanted, Phase phase, const std::string& name) {
        leaving.near = move(leaving.gone, Tier::disk, Tier::host, wanted.block, phase, name + ".near");
      });
    }
    hop(index, ahead, next_back_, [&](LeavingActivation& leaving, const Stretch& wanted, Phase phase, const std::string& name) {
      if (options_.among) {
        leaving.back = gathered(leaving, wanted, phase, name);
        return;
      }
      const ValueId from = options_.tier == Tier::disk ? leaving.near : leaving.gone;
      leaving.back = move(from, Tier::host, Tier::device, wanted.block, phase, name + ".back");
    });
  }

  template <typename Ask>
  void hop(std::size_t index, std::size_t ahead, std::size_t& next, const Ask& ask) {
    next = std::max(next, index);
    for (; next < stretches_.size() && next <= index + ahead && follows(index, next); ++next) {
      // What is wanted first of a block's backward pass was made last.
      for (auto leaving = leaving_.rbegin(); leaving != leaving_.rend(); ++leaving) {
        if (leaving->wanted == next) ask(*leaving, stretches_[next], stretches_[index].phase, old_.values[leaving->value].name);
      }
    }
  }

  // ---- readers

  ValueId back(ValueId id, const Stretch& stretch) {
    const auto found = leaving_of_.find(base_[id.index].index);
    if (found == leaving_of_.end()) return id;
    const ValueId whole = leaving_[found->second].back;
    if (base_[id.index] == id) return whole;
    const auto [view, fresh] = views_.try_emplace(id.index);
    if (fresh) {
      const Node& seen = old_.nodes[old_.values[id].producer];
      view->second =
          rewrite_.make_one(seen.op, {back(seen.inputs[0], stretch)}, {stretch.block, stretch.phase}, old_.values[id].name + ".back");
    }
    return views_.at(id.index);
  }

  void copy(const Stretch& stretch, Node node) {
    if (goes_back(stretch.phase)) {
      for (ValueId& id : node.inputs) id = back(id, stretch);
    }
    rewrite_.keep(std::move(node));
  }

  const Graph& old_;
  graph::ScalarChains chains_;
  graph::Rewrite rewrite_;
  const StoreOptions& options_;
  std::vector<ValueId> base_;  // of a view, what it is a view of
  std::vector<Stretch> stretches_;
  std::vector<bool> same_;                  // values that all tensor ranks have, where they share them out
  std::vector<LeavingActivation> leaving_;  // in the order in which they are made
  std::map<std::uint32_t, std::size_t> leaving_of_;
  std::map<std::uint32_t, ValueId> views_;  // old view -> the same of what is back
  std::size_t next_near_ = 0;               // the first stretch for which nobody asked
  std::size_t next_back_ = 0;
};

}  // namespace

Graph store_activations(const Graph& graph, const StoreOptions& options) {
  return has_backward_pass(graph) ? ActivationStore(graph, options).run() : graph;
}

}  // namespace plimsoll::lowering
