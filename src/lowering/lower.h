// graph + strategy -> plan.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/kernel_choice.h"
#include "plan/plan.h"
#include "strategy/schedules/schedule.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// A graph and how often it runs per program: the train program runs its micro-batches one after the other.
struct ProgramSource {
  std::string name;
  const graph::Graph& graph;
  std::int32_t micro_batches = 1;
  bool waiting_update_only = false;  // of a training graph: the update that a step left to the next (carry_update.h)
  plan::Cadence cadence = {};
  std::string role = {};  // of the ranks that have it; empty: all of them

  bool is_for(const std::string& of_rank) const { return role.empty() || role == of_rank; }
};

// The role of a rank; ranks that run the same have the same one. None: that of all is empty.
using RoleOf = std::function<std::string(const plan::Mesh& mesh, std::int32_t rank)>;

struct RowTable;  // rows.h

struct LoweringInputs {
  std::string model;
  std::vector<ProgramSource> programs;  // values of the same name that outlive a program are the same buffer; training comes first
  strategy::Strategy strategy;
  std::optional<strategy::schedules::Schedule> schedule = {};  // of a pipeline; else made as the strategy names it
  ops::ChooseKernel choose;
  int threads = 1;
  double link = 0.1;              // bytes to or from the host's memory in the time of one floating-point operation, about
  bool host_beside = false;       // the host's processor is another than the device: it computes on a stream of its own
  base::Bytes device_limit = {};  // of a rank's arena, where the strategy is fitted to it (optimal recompute); zero: none
  base::Bytes host_limit = {};    // of all ranks' arenas in the host's memory, where the strategy is fitted to it; zero: none
  RoleOf role_of = {};
  const RowTable* rows = nullptr;  // set here: graphs have the rows of this table that a step reads
  // Told of the passes over the first rank's graph of the first program. Lowering may try several orders of what is recomputed, each with
  // all passes.
  graph::PassDone pass_done = {};
};

// Where updates wait for the next step, a program more than are asked for makes the one that waits (kFlush); where the token table is on
// disk, two move its rows (rows.h).
plan::Plan lower(const LoweringInputs& inputs);

}  // namespace plimsoll::lowering
