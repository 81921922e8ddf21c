#include "executor/sim/crew.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "cost/layout.h"

namespace plimsoll::executor::sim {

namespace {

class Mustering {
 public:
  Mustering(const Script& script, const cluster::Cluster& cluster, const Options& options, Flows& flows)
      : script_(script), plan_(*script.plan), cluster_(cluster), options_(options), flows_(flows) {}

  Crew run() {
    crew_.mesh = &plan_.mesh;
    part_data();
    for (std::size_t part = 0; part < script_.parts.size(); ++part) {
      for (std::int32_t data = 0; data < static_cast<std::int32_t>(data_parts_.size()); ++data) add_actor(part, data);
    }
    find_groups();
    return std::move(crew_);
  }

 private:
  // Data places that somebody makes different are each a part of the axis; the others are one.
  void part_data() {
    const std::int32_t data = plan_.mesh.data;
    std::set<std::int32_t> alone;
    for (const Straggler& straggler : options_.stragglers) {
      if (straggler.rank < 0 || straggler.rank >= plan_.mesh.ranks() || !(straggler.factor > 0.0))
        base::bad_input("found rank {} to be {} times as slow, expected one of {} ranks and more than 0", straggler.rank, straggler.factor,
                        plan_.mesh.ranks());
      if (plan_.mesh.even()) alone.insert(plan_.mesh.place(ops::Axis::data, straggler.rank));
    }
    for (std::int32_t place = 0; options_.jitter > 0.0 && place < data; ++place) alone.insert(place);
    std::vector<std::int32_t> rest;
    for (std::int32_t place = 0; place < data; ++place) {
      if (!alone.contains(place)) rest.push_back(place);
    }
    if (!rest.empty()) data_parts_.push_back(rest);
    for (const std::int32_t place : alone) data_parts_.push_back({place});
  }

  void add_actor(std::size_t part_index, std::int32_t data_part) {
    const Part& part = script_.parts[part_index];
    const std::vector<std::int32_t>& places = data_parts_[static_cast<std::size_t>(data_part)];
    Actor actor{.part = &part, .part_index = part_index, .data_part = data_part};
    actor.ranks = static_cast<std::int64_t>(places.size()) * (options_.tensor_folded ? plan_.mesh.tensor : 1);
    actor.first_rank = part.rank_class->ranks.front() + places.front() * plan_.mesh.tensor;
    for (const Straggler& straggler : options_.stragglers) {
      const std::int32_t like = straggler.rank - (options_.tensor_folded ? plan_.mesh.place(ops::Axis::tensor, straggler.rank) : 0);
      if (places.size() == 1 && like == actor.first_rank) actor.slowness *= straggler.factor;
    }
    if (cluster_.device.cores > 0) find_nodes(actor, places);
    actor.lanes.resize(part.lanes.size());
    actor.given.assign(part.tokens, 0);
    actor.awaited.assign(part.tokens, 0);
    for (Flows::ResourceId& wire : actor.wires) wire = flows_.add_resource(1.0);
    actor.times.name = part.rank_class->name;
    if (data_parts_.size() > 1 && places.size() == 1) actor.times.name += fmt::format(", data {}", places.front());
    actor.times.rank_class = part_index;
    actor.times.ranks = actor.ranks;
    actor.times.first_rank = actor.first_rank;
    for (const Lane& lane : part.lanes) actor.times.lanes.push_back(lane.kind);
    crew_.actors.push_back(std::move(actor));
  }

  void find_nodes(Actor& actor, const std::vector<std::int32_t>& places) const {
    std::map<std::int64_t, std::int64_t> count;
    const std::int32_t beside = options_.tensor_folded ? plan_.mesh.tensor : 1;
    for (const std::int32_t place : places) {
      const std::int32_t first = actor.part->rank_class->ranks.front() + place * plan_.mesh.tensor;
      for (std::int32_t rank = first; rank < first + beside; ++rank) ++count[cost::node_of(cluster_, rank)];
    }
    for (const auto& [node, ranks] : count) {
      actor.nodes.push_back(node);
      actor.on_a_node = std::max(actor.on_a_node, ranks);
    }
  }

  // Actors that meet on an axis have the same key there.
  std::array<std::int64_t, 4> key_of(ops::Axis axis, std::uint32_t index) const {
    const Actor& actor = crew_.actors[index];
    const auto number = static_cast<std::int64_t>(axis);
    if (!plan_.mesh.even())
      return {number, plan_.mesh.group(axis, actor.first_rank).front(), plan_.mesh.sits_on(axis, actor.first_rank) ? 0 : 1 + index, 0};
    const std::int64_t pipe = actor.part->pipe;
    const std::int64_t tensor = options_.tensor_folded ? 0 : actor.part->tensor;
    switch (axis) {
      case ops::Axis::tensor: return {number, pipe, actor.data_part, 0};
      case ops::Axis::tensor_inner: return {number, pipe, actor.data_part, tensor / plan_.mesh.tensor_inner};
      case ops::Axis::data:
      case ops::Axis::data_inner:
      case ops::Axis::data_outer: return {number, pipe, tensor, 0};
      case ops::Axis::pipe: return {number, tensor, actor.data_part, 0};
      case ops::Axis::tied: break;
    }
    const bool tied = pipe == 0 || pipe == plan_.mesh.tied;
    return {number, tensor, actor.data_part, tied ? -1 : pipe};
  }

  void find_groups() {
    std::map<std::array<std::int64_t, 4>, std::uint32_t> known;
    for (std::uint32_t actor = 0; actor < crew_.actors.size(); ++actor) {
      for (std::size_t axis = 0; axis < ops::kAxes; ++axis) {
        const auto [found, fresh] =
            known.try_emplace(key_of(static_cast<ops::Axis>(axis), actor), static_cast<std::uint32_t>(crew_.groups.size()));
        if (fresh) crew_.groups.emplace_back();
        crew_.groups[found->second].members.push_back(actor);
        crew_.actors[actor].groups[axis] = found->second;
      }
    }
  }

  const Script& script_;
  const plan::Plan& plan_;
  const cluster::Cluster& cluster_;
  const Options& options_;
  Flows& flows_;
  std::vector<std::vector<std::int32_t>> data_parts_;
  Crew crew_;
};

}  // namespace

std::uint32_t Crew::other_end(const Actor& actor, const ops::Message& message, std::int32_t micro_batch) const {
  const auto no_place = [&] { base::bad_input("a message goes to place {} of the pipe axis, which is not there", message.peer); };
  if (message.peer < 0 || message.peer >= mesh->pipe) no_place();
  if (!mesh->even()) {
    // Every rank is an actor, in the order of ranks.
    return static_cast<std::uint32_t>(mesh->other_end(actor.first_rank, message, micro_batch));
  }
  const std::vector<std::uint32_t>& line = groups[actor.groups[static_cast<std::size_t>(ops::Axis::pipe)]].members;
  const auto found = std::find_if(line.begin(), line.end(), [&](std::uint32_t each) { return actors[each].part->pipe == message.peer; });
  if (found == line.end()) no_place();
  return *found;
}

Crew crew_of(const Script& script, const cluster::Cluster& cluster, const Options& options, Flows& flows) {
  return Mustering(script, cluster, options, flows).run();
}

}  // namespace plimsoll::executor::sim
