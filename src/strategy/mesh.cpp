// How many ranks there are along each axis, what data ranks share out, and in which pieces they exchange it.
#include "strategy/dimensions.h"
#include "strategy/legality.h"

namespace plimsoll::strategy {

namespace {

bool has_copies(const Strategy& strategy) { return strategy.pipelines() * strategy.turn() > 1; }

void chunks_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(strategy.pipe == 1 && strategy.chunks != 1, "\"chunks\" is {}, but the pipe axis has one rank; use \"chunks\": 1",
                  strategy.chunks);
  reasons.against(strategy.pipe > 1 && strategy.own_degrees() && strategy.chunks > 1,
                  "\"stages\" have degrees of their own, but \"chunks\" is {}, which puts several on a rank; use 1", strategy.chunks);
}

void zero_group_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  const std::int64_t group = strategy.zero_group;
  if (group == 0) return;
  reasons.against(strategy.pipe > 1 && strategy.own_degrees(),
                  "\"stages\" have degrees of their own, but \"zero_group\" {} is for one number of data ranks; use 0", group);
  reasons.against(strategy.data % group != 0,
                  "\"zero_group\" is {}, which does not divide \"data\": {} leaves {} over; use a divisor, or 0 for all data ranks", group,
                  strategy.data, strategy.data % group);
  reasons.against(group == 1 && strategy.data > 1,
                  "\"zero_group\" is 1, and one rank shares nothing out; use 2 or more, 0 for all data ranks, or \"zero\": 0");
  reasons.against(strategy.zero == 0, "\"zero_group\" is {}, but with \"zero\": 0 nothing is shared out; use 0, or \"zero\": 1, 2 or 3",
                  group);
}

void reduce_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(strategy.zero > 0 && strategy.reduce == Reduce::main,
                  "\"reduce\" is \"main\", which brings whole gradients to one rank, but \"zero\" is {}; use \"zero\": 0 or \"reduce\": "
                  "\"ring\"",
                  strategy.zero);
}

void keep_params_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(!synchronous(strategy) && strategy.zero == 3 && strategy.keep_params,
                  "\"keep_params\" keeps gathered weights for a step, but with \"{}\" a step has several versions of them; use false",
                  strategy.schedule);
}

}  // namespace

std::vector<Dimension> mesh_dimensions() {
  return {
      {.key = "data",
       .about = "Copies of the model that share out the batch.",
       .form = Count{&Strategy::data, 1, 0, kMostRanks},
       .listed = true},
      {.key = "tensor",
       .about = "Ranks that each weight matrix is split over.",
       .form = Count{&Strategy::tensor, 1, 0, kMostRanks},
       .listed = true},
      {.key = "pipe",
       .about = "Pipeline ranks that the blocks are dealt to.",
       .form = Count{&Strategy::pipe, 1, 0, kMostRanks},
       .derived = "1, or listed stages / chunks",
       .listed = true},
      {.key = "chunks",
       .about = "Pipeline stages of a rank (interleaved).",
       .form = Count{&Strategy::chunks, 1},
       .listed = true,
       .add_reasons = chunks_reasons},
      {.key = "zero",
       .about = "What `data` ranks share out: 1 optimizer state, 2 also gradients, 3 also weights.",
       .form = Count{&Strategy::zero, 0, 3},
       .listed = true,
       .needs = "several data ranks",
       .used = has_copies},
      {.key = "zero_group",
       .about = "ZeRO: neighbouring `data` ranks (of one machine) that share tensors out; such groups hold the same. 0 = all.",
       .form = Count{&Strategy::zero_group, 0, 0, kMostRanks},
       .listed = true,
       .add_reasons = zero_group_reasons},
      {.key = "keep_params",
       .about = "ZeRO-3: keep gathered weights across micro-batches instead of gathering them again.",
       .form = Flag{&Strategy::keep_params},
       .listed = true,
       .needs = "\"strategy.zero\": 3",
       .used = [](const Strategy& strategy) { return strategy.zero == 3; },
       .add_reasons = keep_params_reasons},
      {.key = "keep_grads",
       .about = "ZeRO-2/3: keep whole gradients across micro-batches and reduce once, instead of reducing each.",
       .form = Flag{&Strategy::keep_grads},
       .listed = true,
       .needs = "\"strategy.zero\": 2 or 3",
       .used = [](const Strategy& strategy) { return strategy.zero >= 2; }},
      {.key = "bucket", .about = "Gradients moved in one collective.", .form = Size{&Strategy::bucket}},
      {.key = "prefetch", .about = "Blocks that gathers and copies run ahead.", .form = Count{&Strategy::prefetch, 0}},
      {.key = "reduce",
       .about = "Gradients are added around a ring, or by one rank for all.",
       .form = word<&Strategy::reduce, kReduceWords>(),
       .needs = "several data ranks",
       .used = has_copies,
       .add_reasons = reduce_reasons},
  };
}

}  // namespace plimsoll::strategy
