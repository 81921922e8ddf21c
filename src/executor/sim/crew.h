// Who takes part in a simulation: ranks that behave alike as one actor each, and whom each meets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "executor/sim/flows.h"
#include "executor/sim/simulate.h"

namespace plimsoll::executor::sim {

// One stream of an actor.
struct LaneState {
  std::uint32_t turn = 0;
  std::uint32_t step = 0;
  bool entered = false;
  double began = 0.0;
  // A computation under way on the device: seconds of it that are left, as of when, and the number of the event that ends it.
  bool computes = false;
  double left = 0.0;
  double as_of = 0.0;
  std::uint64_t end = 0;
};

// Ranks that behave alike: a class, and some of its places on the axes whose ranks run one program.
struct Actor {
  const Part* part = nullptr;
  std::size_t part_index = 0;
  std::vector<std::int32_t> places{};  // by axis, as in the mesh's table: its place, or which of the parts that its places are in
  std::int64_t ranks = 1;
  std::int32_t first_rank = 0;
  double slowness = 1.0;
  std::vector<LaneState> lanes{};
  std::vector<std::uint8_t> given{};     // tokens
  std::vector<std::uint16_t> awaited{};  // by token: lanes that wait for it
  std::array<Flows::ResourceId, kWires> wires{};
  std::vector<std::uint32_t> groups{};  // whom it meets on each axis, by its place in the mesh's table
  std::vector<std::int64_t> nodes{};    // that it is on, where the ranks of a node share its cores
  std::int64_t on_a_node = 1;           // of its ranks, on the node that has most of them
  // What it does now, and since when.
  int computing = 0;
  int moving = 0;
  int meeting = 0;  // of what moves, collectives
  double since = 0.0;
  RankTimes times{};
};

struct Place {
  std::uint32_t actor = 0;
  std::uint32_t lane = 0;
};

// Actors that meet each other on an axis, and who of them has come to the meeting that is next.
struct Group {
  std::vector<std::uint32_t> members{};
  std::vector<Place> arrived{};
};

struct Crew {
  const plan::Mesh* mesh = nullptr;
  std::vector<Actor> actors;
  std::vector<Group> groups;

  // At the other end of a message; bad_input when there is none.
  std::uint32_t other_end(const Actor& actor, const ops::Message& message, std::int32_t micro_batch) const;
};

// bad_input when a straggler is none of the ranks. Every actor gets wires of its own in `flows`. `script` must outlive the crew.
Crew crew_of(const Script& script, const cluster::Cluster& cluster, const Options& options, Flows& flows);

}  // namespace plimsoll::executor::sim
