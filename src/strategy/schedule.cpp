// When each piece of a pipeline runs, and what its stages are.
#include <algorithm>

#include "strategy/dimensions.h"
#include "strategy/legality.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"

namespace plimsoll::strategy {

namespace {

bool is_pipeline(const Strategy& strategy) { return strategy.pipe > 1; }

// The schedule's own reasons against so many micro-batches are found when it is made.
void schedule_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  const schedules::Kind* kind = strategy.pipe > 1 ? schedules::kind_named(strategy.schedule) : nullptr;
  reasons.against(kind != nullptr && kind->drawn_only, "\"schedule\" is \"{}\", which can be drawn, but not run; use \"zb-h1\"",
                  strategy.schedule);
}

void flush_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (strategy.flush_every == 1) return;
  reasons.against(strategy.pipe == 1, "\"flush_every\" is {}, but the pipe axis has one rank; use 1", strategy.flush_every);
  const schedules::Kind* kind = strategy.pipe > 1 ? schedules::kind_named(strategy.schedule) : nullptr;
  reasons.against(kind != nullptr && !kind->takes_batches(),
                  "\"flush_every\" is {}, but \"{}\" ends every step with a flush; use 1, or \"schedule\": \"zb-h2\" or \"2bw\"",
                  strategy.flush_every, strategy.schedule);
}

void sequence_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (!strategy.sequence_parallel) return;
  reasons.against(strategy.widest_tensor() == 1,
                  "\"sequence_parallel\" is true, but the tensor axis has one rank; use false, or a larger \"tensor\"");
  const bool one_width = std::all_of(strategy.stages.begin(), strategy.stages.end(),
                                     [&](const Stage& stage) { return stage.tensor == strategy.stages.front().tensor; });
  reasons.against(strategy.pipe > 1 && strategy.own_degrees() && !one_width,
                  "\"sequence_parallel\" sends rows from each tensor rank to its like, but \"stages\" have different \"tensor\" degrees; "
                  "use false, or one degree");
}

void stage_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(strategy.pipe == 1 && strategy.partition != StagePartition::equal,
                  "\"stages\" divides the blocks, but there is one stage; use \"equal\"");
}

}  // namespace

std::vector<Dimension> schedule_dimensions() {
  return {
      {.key = "schedule",
       .about = "Order of the pipeline's forward and backward pieces.",
       .form = ScheduleName{},
       .listed = true,
       .needs = "several pipe ranks",
       .used = is_pipeline,
       .add_reasons = schedule_reasons},
      {.key = "flush_every",
       .about =
           "Schedules without a flush (pipedream, pipedream-vsync, 2bw) or barrier (zb-h2): steps until all ranks wait for one another.",
       .form = Count{&Strategy::flush_every, 1},
       .add_reasons = flush_reasons},
      {.key = "sequence_parallel",
       .about = "Split activations along the sequence between tensor-parallel parts.",
       .form = Flag{&Strategy::sequence_parallel},
       .listed = true,
       .add_reasons = sequence_reasons},
      {.key = "scatter_boundaries",
       .about = "Between stages every tensor rank sends its rows alone, and they are gathered there.",
       .form = Flag{&Strategy::scatter_boundaries},
       .needs = "pipe and tensor ranks",
       .used = [](const Strategy& strategy) { return strategy.pipe > 1 && strategy.widest_tensor() > 1; }},
      {.key = "stages",
       .about = "How blocks are dealt to the pipeline's (virtual) stages: evenly, by predicted cost, or as listed.",
       .form = StageList{},
       .listed = true,
       .add_reasons = stage_reasons},
  };
}

}  // namespace plimsoll::strategy
