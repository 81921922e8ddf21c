// The choices that a search may make: for every question the answers that are allowed. What the user has decided has one answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/problem.h"

namespace plimsoll::planner {

// What the user decided; an absent answer is open.
struct Pins {
  std::optional<std::int64_t> data = {};
  std::optional<std::int64_t> tensor = {};
  std::optional<std::int64_t> pipe = {};
  std::optional<std::int64_t> chunks = {};
  std::optional<std::int64_t> zero = {};
  std::optional<std::int64_t> zero_group = {};
  std::optional<std::int64_t> micro = {};
  std::optional<bool> keep_params = {};
  std::optional<bool> keep_grads = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<std::string> schedule = {};
  std::optional<strategy::Recompute> recompute = {};
  std::optional<strategy::StagePartition> partition = {};
  std::optional<Tier> optimizer = {};
  std::optional<Tier> params = {};
  std::optional<Tier> gradients = {};
  std::optional<Tier> activations = {};
  std::optional<std::string> precision = {};
  std::optional<Bytes> tile = {};
  std::optional<strategy::EmbeddingRows> rows = {};
  bool pieces = false;  // buckets or how many blocks come ahead: what is under way at once
};

struct Space {
  std::vector<std::int64_t> data, tensor, pipe, chunks, zero, zero_group, micro;
  std::vector<bool> keep_params, keep_grads, sequence_parallel;
  std::vector<std::string> schedule, precision;
  std::vector<Tier> optimizer, params, gradients, activations;  // nearest first
  std::vector<strategy::Recompute> recompute;
  std::vector<strategy::StagePartition> partition;
  std::vector<strategy::EmbeddingRows> rows;  // whole first
  std::vector<Bytes> tile;                    // of weights that live elsewhere; largest first, zero: whole
  strategy::Strategy rest;                    // what is not searched: bucket, prefetch, listed stages

  // Combinations whose parts go together (a schedule only where there is a pipeline, keep_grads only where gradients are in shards, the
  // product of the degrees the number of ranks), each once and in a fixed order. A *shape* leaves open what the data axis does with
  // states, gradients and weights; `visit_sharing` fills that in, with everything in the nearest tier that is allowed; `visit_tiers` has
  // the other tiers of such a choice, tiles of weights in them, and the token table by rows. What lives farther away takes no less time,
  // nor does what comes in tiles, unless what is kept is fitted to the memory.
  void visit_shapes(const Problem& problem, const std::function<void(const Choice&)>& see) const;
  void visit_sharing(const Problem& problem, const Choice& shape, const std::function<void(const Choice&)>& see) const;
  static strategy::TierShare share_of(Tier tier, const strategy::TierShare& given);
  // Of the other tiers, those that hold least on the device.
  Choice farthest(const Problem& problem, const Choice& choice) const;
  void visit_tiers(const Problem& problem, const Choice& choice, const std::function<void(const Choice&)>& see) const;
};

// Everything that is not pinned, as far as it can pay: schedules that others beat everywhere are left out.
Space whole_space(const Problem& problem, const Pins& pins, const strategy::Strategy& rest);

// Of the same, what holds least: whether anything fits is decided there.
Space lean_space(const Problem& problem, const Pins& pins, const strategy::Strategy& rest);

// Pairs of pins that contradict each other or the problem, each in words that name both.
// `others`: ranks of axes that no search chooses (strategy::Strategy::more).
std::vector<std::string> contradictions(const Problem& problem, const Pins& pins, std::int64_t others = 1);

// Whether estimates know what recompute "optimal" is with this schedule.
bool fits_stages(const strategy::Strategy& strategy);

std::vector<std::int64_t> divisors(std::int64_t number);

}  // namespace plimsoll::planner
