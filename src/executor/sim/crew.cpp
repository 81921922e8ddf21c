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
    require_stragglers();
    for (const plan::MeshAxis& entry : plan_.mesh.table()) parts_.push_back(parts_of(entry));
    for (std::size_t part = 0; part < script_.parts.size(); ++part) add_actors(part);
    find_groups();
    return std::move(crew_);
  }

 private:
  using Places = std::vector<std::int32_t>;

  void require_stragglers() const {
    for (const Straggler& straggler : options_.stragglers) {
      if (straggler.rank < 0 || straggler.rank >= plan_.mesh.ranks() || !(straggler.factor > 0.0))
        base::bad_input("found rank {} to be {} times as slow, expected one of {} ranks and more than 0", straggler.rank, straggler.factor,
                        plan_.mesh.ranks());
    }
  }

  // Of an axis whose ranks run one program: places that somebody makes different are each a part of it; the others are one. Of others none.
  std::vector<Places> parts_of(const plan::MeshAxis& entry) const {
    std::vector<Places> parts;
    if (entry.row.differs() || entry.row.part_of.valid() || !plan_.mesh.even()) return parts;
    std::set<std::int32_t> alone;
    for (const Straggler& straggler : options_.stragglers) alone.insert(plan_.mesh.place(entry.row.axis, straggler.rank));
    for (std::int32_t place = 0; options_.jitter > 0.0 && place < entry.extent; ++place) alone.insert(place);
    Places rest;
    for (std::int32_t place = 0; place < entry.extent; ++place) {
      if (!alone.contains(place)) rest.push_back(place);
    }
    if (!rest.empty()) parts.push_back(rest);
    for (const std::int32_t place : alone) parts.push_back({place});
    return parts;
  }

  // One for each combination of parts, the innermost axis's first.
  void add_actors(std::size_t part_index) {
    const std::int32_t first = script_.parts[part_index].rank_class->ranks.front();
    std::vector<std::int32_t> places(parts_.size());
    for (std::size_t axis = 0; axis < parts_.size(); ++axis) {
      const ops::AxisRow& row = plan_.mesh.table()[axis].row;
      const bool folded = options_.tensor_folded && row.shares == ops::Shares::tensors;
      if (parts_[axis].empty() && !folded) places[axis] = plan_.mesh.place(row.axis, first);
    }
    while (true) {
      add_actor(part_index, places);
      std::size_t axis = parts_.size();
      while (axis > 0 && (parts_[axis - 1].empty() || ++places[axis - 1] == std::ssize(parts_[axis - 1]))) {
        if (!parts_[axis - 1].empty()) places[axis - 1] = 0;
        --axis;
      }
      if (axis == 0) return;
    }
  }

  // Of the class, those at these places.
  std::vector<std::int32_t> ranks_at(const Part& part, const std::vector<std::int32_t>& places) const {
    std::vector<std::int32_t> ranks{part.rank_class->ranks.front()};
    for (std::size_t axis = 0; axis < parts_.size(); ++axis) {
      if (parts_[axis].empty()) continue;
      std::vector<std::int32_t> wider;
      for (const std::int32_t rank : ranks) {
        for (const std::int32_t place : parts_[axis][static_cast<std::size_t>(places[axis])])
          wider.push_back(rank + place * plan_.mesh.stride(plan_.mesh.table()[axis].row.axis, rank));
      }
      ranks = std::move(wider);
    }
    return ranks;
  }

  std::vector<std::int32_t> beside(std::int32_t rank) const {
    return options_.tensor_folded ? plan_.mesh.sharing(ops::Shares::tensors, rank) : std::vector{rank};
  }

  void add_actor(std::size_t part_index, const std::vector<std::int32_t>& places) {
    const Part& part = script_.parts[part_index];
    const std::vector<std::int32_t> ranks = ranks_at(part, places);
    Actor actor{.part = &part, .part_index = part_index, .places = places};
    actor.ranks = std::ssize(ranks) * std::ssize(beside(ranks.front()));
    actor.first_rank = ranks.front();
    for (const Straggler& straggler : options_.stragglers) {
      if (ranks.size() == 1 && beside(straggler.rank).front() == actor.first_rank) actor.slowness *= straggler.factor;
    }
    if (cluster_.device.cores > 0) find_nodes(actor, ranks);
    actor.lanes.resize(part.lanes.size());
    actor.given.assign(part.tokens, 0);
    actor.awaited.assign(part.tokens, 0);
    for (Flows::ResourceId& wire : actor.wires) wire = flows_.add_resource(1.0);
    actor.times.name = part.rank_class->name + part_names(places);
    actor.times.rank_class = part_index;
    actor.times.ranks = actor.ranks;
    actor.times.first_rank = actor.first_rank;
    for (const Lane& lane : part.lanes) actor.times.lanes.push_back(lane.kind);
    crew_.actors.push_back(std::move(actor));
  }

  // Of parts that are one place each among several.
  std::string part_names(const std::vector<std::int32_t>& places) const {
    std::string names;
    for (std::size_t axis = 0; axis < parts_.size(); ++axis) {
      if (parts_[axis].size() < 2) continue;
      const Places& part = parts_[axis][static_cast<std::size_t>(places[axis])];
      if (part.size() == 1) names += fmt::format(", {} {}", plan_.mesh.table()[axis].row.axis.name(), part.front());
    }
    return names;
  }

  void find_nodes(Actor& actor, const std::vector<std::int32_t>& ranks) const {
    std::map<std::int64_t, std::int64_t> count;
    for (const std::int32_t first : ranks) {
      for (const std::int32_t rank : beside(first)) ++count[cost::node_of(cluster_, rank)];
    }
    for (const auto& [node, on_it] : count) {
      actor.nodes.push_back(node);
      actor.on_a_node = std::max(actor.on_a_node, on_it);
    }
  }

  // Actors that meet on an axis have the same key there: the axis, and where they are on all others. Ranks of an axis that run one program
  // meet as one group, whatever levels it has.
  std::vector<std::int64_t> key_of(std::size_t index, std::uint32_t number) const {
    const Actor& actor = crew_.actors[number];
    const std::vector<plan::MeshAxis>& table = plan_.mesh.table();
    const plan::MeshAxis& entry = table[index];
    const ops::Axis& axis = entry.row.axis;
    std::vector<std::int64_t> key{static_cast<std::int64_t>(index)};
    if (!plan_.mesh.even()) {
      key.push_back(plan_.mesh.group(axis, actor.first_rank).front());
      key.push_back(plan_.mesh.sits_on(axis, actor.first_rank) ? 0 : 1 + number);
      return key;
    }
    for (std::size_t other = 0; other < table.size(); ++other) {
      const bool whole = other == index || table[other].row.axis == entry.row.part_of;
      if (!whole && !table[other].row.part_of.valid()) key.push_back(actor.places[other]);
    }
    if (!entry.row.part_of.valid() || !entry.row.differs()) return key;
    const std::int32_t place = actor.places[plan_.mesh.index(entry.row.part_of)];
    key.push_back(entry.row.some_places ? (plan_.mesh.sits_on(axis, actor.first_rank) ? -1 : place) : place / (entry.extent * entry.step));
    return key;
  }

  void find_groups() {
    std::map<std::vector<std::int64_t>, std::uint32_t> known;
    for (std::uint32_t actor = 0; actor < crew_.actors.size(); ++actor) {
      for (std::size_t axis = 0; axis < plan_.mesh.table().size(); ++axis) {
        const auto [found, fresh] = known.try_emplace(key_of(axis, actor), static_cast<std::uint32_t>(crew_.groups.size()));
        if (fresh) crew_.groups.emplace_back();
        crew_.groups[found->second].members.push_back(actor);
        crew_.actors[actor].groups.push_back(found->second);
      }
    }
  }

  const Script& script_;
  const plan::Plan& plan_;
  const cluster::Cluster& cluster_;
  const Options& options_;
  Flows& flows_;
  std::vector<std::vector<Places>> parts_;  // by axis, as in the mesh's table
  Crew crew_;
};

}  // namespace

std::uint32_t Crew::other_end(const Actor& actor, const ops::Message& message, std::int32_t micro_batch) const {
  const auto no_place = [&] { base::bad_input("a message goes to place {} of the pipe axis, which is not there", message.peer); };
  if (message.peer < 0 || message.peer >= mesh->extent(ops::Axis::pipe)) no_place();
  if (!mesh->even()) {
    // Every rank is an actor, in the order of ranks.
    return static_cast<std::uint32_t>(plan::other_end(*mesh, actor.first_rank, message, micro_batch));
  }
  const std::uint32_t pipe = mesh->index(ops::Axis::pipe);
  const std::vector<std::uint32_t>& line = groups[actor.groups[pipe]].members;
  const auto found = std::find_if(line.begin(), line.end(), [&](std::uint32_t each) { return actors[each].places[pipe] == message.peer; });
  if (found == line.end()) no_place();
  return *found;
}

Crew crew_of(const Script& script, const cluster::Cluster& cluster, const Options& options, Flows& flows) {
  return Mustering(script, cluster, options, flows).run();
}

}  // namespace plimsoll::executor::sim
