// What is to be planned, one answer to it, and what an answer would be like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "planner/prices.h"
#include "strategy/stages.h"
#include "strategy/strategy.h"

namespace plimsoll::planner {

using base::Bytes;

struct Problem {
  std::int64_t layers = 1;
  std::int64_t global_batch = 1;  // samples in a step
  std::int64_t sequence = 1;
  std::int64_t ranks = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t heads = 1;       // that tensor ranks share out
  Bytes device;                 // that a rank may use
  Bytes host;                   // that the ranks of a node may use together; zero: none
  Bytes disk = {};              // the same
  bool host_is_a_tier = true;   // else only what is on its way to and from a disk is there
  Bytes together = {};          // of devices and host of a node, where these are one memory; zero: they are not
  bool host_beside = false;     // the host computes beside the devices
  Bytes largest = {};           // block's weights, on a rank without others; zero: not known
  bool rows_may_leave = false;  // the token table can be on disk, a step's rows of it here
  PriceOf prices;
  Wires wires;
  std::vector<std::string> precisions = {""};  // that may be chosen; one that is empty: as the run has it
  double model_flops = 0.0;                    // of a sample, forward and backward once, all ranks together

  std::int64_t most_stages() const { return strategy::most_stages(layers); }
};

// A strategy with the micro-batch it is for.
struct Choice {
  strategy::Strategy strategy;
  std::int64_t micro = 1;
  std::string precision = {};

  std::int64_t micro_batches(const Problem& problem) const { return problem.global_batch / (micro * strategy.batch_ranks()); }
  bool operator==(const Choice&) const = default;
};

// "data 4 x tensor 8 x pipe 16, 2 chunks, ZeRO 1, interleaved, micro-batch 2, recompute full"
std::string describe(const Choice& choice);

inline Tier tier_of(const strategy::TierShare& share) {
  return share.disk > 0.0 ? Tier::disk : share.host > 0.0 ? Tier::host : Tier::device;
}
inline strategy::TierShare all_in(Tier tier) { return {.host = tier == Tier::host ? 1.0 : 0.0, .disk = tier == Tier::disk ? 1.0 : 0.0}; }

struct Memory {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes activations;
  Bytes working;
  Bytes host;  // beside the device
  Bytes disk;

  Bytes device() const { return weights + gradients + optimizer + activations + working; }
};

struct Estimate {
  std::string reason;         // why it cannot be had; empty: it can
  double step_seconds = 0.0;  // zero where it cannot
  double bubble = 0.0;        // share of the step that ranks wait for others in the pipeline
  double exposed = 0.0;       // seconds of the step in which a rank only communicates: reductions, gathers, messages' ends
  double tensor_share = 0.0;  // of the computing time, what tensor collectives take
  double wait_share = 0.0;    // of the computing time, what is waited for weights and gradients in shards
  double again_share = 0.0;   // of the computing time, what is done a second time
  double update_seconds = 0.0;
  double flops = 0.0;  // of one rank in a step, what is done a second time included
  Memory memory;       // of the fullest rank

  bool fits() const { return reason.empty(); }
};

struct Candidate {
  Choice choice;
  Estimate estimate;
};

}  // namespace plimsoll::planner
