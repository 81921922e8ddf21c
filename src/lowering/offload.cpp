#include "lowering/offload.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;
using ops::Tier;

// Parts of a tensor begin at multiples of so many elements: in every element type, whole blocks of the disk tier.
constexpr std::int64_t kPartUnit = std::int64_t{1} << 19;

bool is_update(const Node& node) {
  return std::holds_alternative<ops::AdamUpdate>(node.op) || std::holds_alternative<ops::SgdUpdate>(node.op);
}

bool has_copy(const ops::Op& op) {
  const auto* adam = std::get_if<ops::AdamUpdate>(&op);
  return adam != nullptr ? adam->copy : std::get<ops::SgdUpdate>(op).copy;
}

// The update alone: the weight in the model's type is made of the master afterwards.
ops::Op without_copy(ops::Op op) {
  if (auto* adam = std::get_if<ops::AdamUpdate>(&op)) adam->copy = false;
  if (auto* sgd = std::get_if<ops::SgdUpdate>(&op)) sgd->copy = false;
  return op;
}

// The update of elements [first, first + count) of a parameter.
struct Part {
  Node node;  // of the whole parameter
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool whole = true;
  std::vector<ValueId> home{};  // master and states where they live
  ValueId gradient{};           // in the host's memory
  std::vector<ValueId> near{};  // master and states in the host's memory
};

// What is under way together.
struct Group {
  BlockId block;
  std::vector<Node> before{};  // views
  std::vector<Part> parts{};
  std::vector<Node> after{};  // collectives
  std::int64_t bytes = 0;
};

class Offload {
 public:
  Offload(const Graph& old, Tier tier, base::Bytes bucket) : old_(old), new_(old), tier_(tier), bucket_(bucket.count) { new_.nodes = {}; }

  Graph run() {
    for (const graph::Parameter& parameter : old_.parameters) {
      if (parameter.frozen) continue;
      PLIMSOLL_CHECK(parameter.master != parameter.weight || old_.values[parameter.weight].tier == tier_, "{} has no master",
                     parameter.name);
      new_.values[parameter.master].tier = tier_;
      for (ValueId state : parameter.states) new_.values[state].tier = tier_;
    }
    std::uint32_t next = 0;
    const auto copy_until = [&](auto stops) {
      for (; next < old_.nodes.size() && !stops(old_.nodes[NodeId{next}]); ++next) add(old_.nodes[NodeId{next}]);
    };
    copy_until([](const Node& node) { return node.phase == Phase::update; });
    for (; next < old_.nodes.size() && old_.nodes[NodeId{next}].phase == Phase::update; ++next) sort_in(old_.nodes[NodeId{next}]);
    for (std::size_t index = 0; index < groups_.size(); ++index) {
      if (index == 0) bring(groups_[0]);
      if (index + 1 < groups_.size()) bring(groups_[index + 1]);
      update(groups_[index]);
    }
    copy_until([](const Node&) { return false; });
    return std::move(new_);
  }

 private:
  // ---- groups

  Group& group_of(BlockId block) {
    if (groups_.empty() || groups_.back().block != block) groups_.push_back({.block = block});
    return groups_.back();
  }

  void sort_in(const Node& node) {
    if (!is_update(node)) {
      Group& group = group_of(node.block);
      (std::holds_alternative<ops::Collective>(node.op) ? group.after : group.before).push_back(node);
      return;
    }
    const std::int64_t elements = old_.values[node.inputs[2]].type.shape.elements();
    const std::int64_t in_bucket = bucket_ / base::size_of(base::DType::f32);
    const std::int64_t part = std::max(kPartUnit, in_bucket / kPartUnit * kPartUnit);
    for (std::int64_t first = 0; first < elements; first += part) {
      const std::int64_t count = std::min(part, elements - first);
      const std::int64_t bytes = count * base::size_of(base::DType::f32);
      if (Group& group = group_of(node.block); !group.parts.empty() && group.bytes + bytes > bucket_)
        groups_.push_back({.block = node.block});
      groups_.back().parts.push_back({.node = node, .first = first, .count = count, .whole = count == elements});
      groups_.back().bytes += bytes;
    }
  }

  // ---- nodes

  void add(Node node) {
    for (ValueId& input : node.inputs) {
      if (const auto found = replaced_.find(input.index); found != replaced_.end()) input = found->second;
    }
    const NodeId id = new_.nodes.next_id();
    for (ValueId output : node.outputs) new_.values[output].producer = id;
    new_.nodes.add(std::move(node));
  }

  ValueId make(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, const std::string& name, Tier tier) {
    const ValueId made = new_.add_node(op, std::move(inputs), block, Phase::update, name)[0];
    new_.values[made].tier = tier;
    return made;
  }

  // The part's elements of a value, where it is.
  ValueId part_of(ValueId value, const Part& part) {
    if (part.whole) return value;
    const std::string name = fmt::format("{}.from{}", new_.values[value].name, part.first);
    return make(ops::Slice{.first = part.first, .count = part.count}, {value}, part.node.block, name, new_.values[value].tier);
  }

  // The value in the host's memory.
  ValueId near(ValueId value, BlockId block) {
    const Tier tier = new_.values[value].tier;
    if (tier == Tier::host) return value;
    return make(ops::Move{.from = tier, .to = Tier::host}, {value}, block, new_.values[value].name + ".host", Tier::host);
  }

  // Brings what the updates of a group read: gradients first, which come another way than what is on disk.
  void bring(Group& group) {
    for (Part& part : group.parts) {
      if (!scalars_.valid()) scalars_ = near(part.node.inputs[0], group.block);
      part.gradient = near(part_of(part.node.inputs[1], part), group.block);
    }
    for (Part& part : group.parts) {
      const std::size_t states = part.node.outputs.size() - (has_copy(part.node.op) ? 1 : 0);
      for (std::size_t state = 0; state < states; ++state) {
        part.home.push_back(part_of(part.node.inputs[2 + state], part));
        part.near.push_back(near(part.home.back(), group.block));
      }
    }
  }

  void update(const Group& group) {
    for (const Node& node : group.before) add(node);
    std::vector<std::vector<ValueId>> made;
    for (const Part& part : group.parts) made.push_back(update(part));
    for (std::size_t index = 0; index < group.parts.size(); ++index) {
      const Part& part = group.parts[index];
      for (std::size_t state = 0; state < part.home.size(); ++state) put(made[index][state], part.home[state], group.block, {});
    }
    for (std::size_t index = 0; index < group.parts.size(); ++index) {
      const Part& part = group.parts[index];
      if (!has_copy(part.node.op) || new_.values[part.node.inputs.back()].tier == Tier::host) continue;
      const ValueId target = part_of(part.node.inputs.back(), part);
      if (!part.whole) replaced_[part.node.outputs.back().index] = part.node.inputs.back();
      put(made[index].back(), target, group.block, part.whole ? part.node.outputs.back() : ValueId{});
    }
    for (const Node& node : group.after) add(node);
  }

  // Runs the update in the host's memory; master, states, and last the weight in the model's type.
  std::vector<ValueId> update(const Part& part) {
    std::vector<ValueId> inputs{scalars_, part.gradient};
    inputs.insert(inputs.end(), part.near.begin(), part.near.end());
    const bool copies = has_copy(part.node.op);
    const bool copies_here = copies && new_.values[part.node.inputs.back()].tier == Tier::host;
    if (copies_here) inputs.push_back(part_of(part.node.inputs.back(), part));
    const std::string name = fmt::format("{}.new", new_.values[part.near[0]].name);
    std::vector<ValueId> made =
        new_.add_node(copies_here ? part.node.op : without_copy(part.node.op), inputs, part.node.block, Phase::update, name);
    for (ValueId output : made) new_.values[output].tier = Tier::host;
    if (!copies || copies_here) return made;
    const base::DType dtype = old_.values[part.node.inputs.back()].type.dtype;
    made.push_back(dtype == base::DType::f32 ? made[0]
                                             : make(ops::Cast{.dtype = dtype}, {made[0]}, part.node.block, name + ".cast", Tier::host));
    return made;
  }

  // From the host's memory to where it lives; `as` names the result where somebody reads it.
  void put(ValueId value, ValueId home, BlockId block, ValueId as) {
    const Tier tier = new_.values[home].tier;
    if (tier == Tier::host) return;
    const ops::Move move{.from = Tier::host, .to = tier, .into = true};
    if (as.valid()) new_.values[as].tier = tier;
    if (as.valid()) return add({.op = move, .inputs = {value, home}, .outputs = {as}, .block = block, .phase = Phase::update});
    make(move, {value, home}, block, new_.values[home].name + ".put", tier);
  }

  const Graph& old_;
  Graph new_;
  Tier tier_;
  std::int64_t bucket_;
  std::vector<Group> groups_;
  std::map<std::uint32_t, ValueId> replaced_;  // results that were made in parts -> what sees them all
  ValueId scalars_;                            // in the host's memory
};

}  // namespace

Graph offload_optimizer(const Graph& graph, Tier tier, base::Bytes bucket) {
  for (const Node& node : graph.nodes) {
    if (is_update(node)) return Offload(graph, tier, bucket).run();
  }
  return graph;
}

}  // namespace plimsoll::lowering
