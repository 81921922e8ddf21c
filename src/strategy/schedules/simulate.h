// What a schedule takes and holds, on ideal ranks: each runs its order as soon as it can. Messages hide behind work; those of one rank
// leave one after the other, so where they take longer than the work they set the pace.
//
//   forward(s, i)          after forward(s-1, i)
//   recompute(s, i)        after forward(s, i)
//   backward[_input](s, i) after forward(s, i), recompute(s, i) where there is one, and backward[_input](s+1, i)
//   backward_weight(s, i)  after backward_input(s, i)
#pragma once

#include <cstdint>
#include <vector>

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

struct StageCost {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  double recompute = 1.0;
};

// Between a rank and the next one, in either direction.
struct Hop {
  double seconds = 0.0;
  bool far = false;  // over other wires than messages that are not
};

struct Costs {
  std::vector<StageCost> stages{StageCost{}};  // one for all stages, or one each
  double message = 0.0;                        // from one rank to another, where `hops` does not say
  std::vector<Hop> hops{};                     // by the first of the two ranks; the last is from the last rank to the first
  double update = 0.0;
  bool recompute_on_gradient = false;  // recomputes wait for the gradient from the stage after, as Varuna's drawing has it

  const StageCost& of(std::int32_t stage) const { return stages.size() == 1 ? stages[0] : stages[static_cast<std::size_t>(stage)]; }
  double of(const Item& item) const;
  Hop hop(std::int32_t from, std::int32_t to) const;
};

struct Span {
  double start = 0.0;
  double end = 0.0;
};

struct Timeline {
  std::vector<std::vector<Span>> ranks;  // one span for each item
  double makespan = 0.0;

  double busy(std::size_t rank) const;
};

// For a schedule that verify.h accepts.
Timeline simulate(const Schedule& schedule, const Costs& costs);

// Where ranks that run their orders stop for ever: the first item of each that cannot run; empty when all can.
struct Blocked {
  std::int32_t rank = 0;
  std::size_t item = 0;  // in the rank's order
  Item waits_for;        // what it lacks
};
std::vector<Blocked> find_blocked(const Schedule& schedule);

struct Figures {
  double makespan = 0.0;
  double period = 0.0;           // from step to step: the makespan, or without a barrier the longest that one rank takes
  double bubble_fraction = 0.0;  // of all ranks' time in a period, what they wait
  // For each rank:
  std::vector<std::int64_t> peak_live;  // stages' worth of micro-batches between forward and the last part of the backward
  std::vector<std::int64_t> peak_full;  // of these, with all activations there: not those that wait for a recompute
  std::vector<std::int64_t> versions;   // of the weights, at once
  std::vector<std::int64_t> messages;   // sent to other ranks
};

Figures figures(const Schedule& schedule, const Timeline& timeline);

// The bubble once a schedule without a flush has started: two layouts of it that differ in the count of batches are compared.
double steady_bubble(const Schedule& shorter, const Schedule& longer, const Costs& costs);

}  // namespace plimsoll::strategy::schedules
