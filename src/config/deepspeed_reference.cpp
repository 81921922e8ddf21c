// The documentation page of DeepSpeed's keys, made from the table of keys.
#include <fmt/format.h>

#include "config/config.h"
#include "config/deepspeed_keys.h"

namespace plimsoll::config {

namespace {

constexpr std::string_view kDeepSpeedIntroduction = R"(# DeepSpeed's JSON

`plimsoll train RUN.json --deepspeed ds_config.json` takes settings from a DeepSpeed configuration as
it is; so do `plan`, `explain`, `eval` and `generate`. Its keys may also stand in the run file itself,
at the top or under `"deepspeed"`.

- As in DeepSpeed, the file may be HJSON (comments, no quotes, no commas), a flag may be `1` or
  `"true"`, a number `"8"` and an integer `5e8`. `"auto"` leaves a key to the run file.
- What the DeepSpeed file and the run file both say must agree; `--set` overrules both. Where a block
  of DeepSpeed stands, its own defaults hold for what the block leaves out (Adam's second beta is
  0.999, a warmup is logarithmic).
- `train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data ranks` is
  solved for what is missing, and printed with its numbers; a remainder or a contradiction is an
  error. The number of data ranks is `strategy.data`; where only the three others are given, it
  follows from them. With `gradient_accumulation_steps` alone, a micro-batch is a data rank's share of
  the default batch divided by it, at least one sequence.
- A warning lists the keys that have no effect, or another one than in DeepSpeed, with what happens
  instead. Keys that would train something else (another update rule, sparse attention, compression,
  curricula) are refused while they are switched on. Unknown keys are errors inside
  `zero_optimization`, `fp16`, `bf16`, `optimizer.params` and `scheduler.params`, as in DeepSpeed, and
  part of the warning elsewhere. All errors are shown at once.
- `plimsoll explain RUN.json --deepspeed ds_config.json` lists every setting with the place it came
  from, and every key of the DeepSpeed file with what became of it.
- A DeepSpeed schedule counts its iterations from 0 and sets a rate after the step; here the first
  step is number 1, so curves agree in shape and are at most two steps apart. Weight decay applies to
  parameters of two or more dimensions.
- MiCS (`mics_shard_size`) is `strategy.zero_group`: neighbouring data ranks share out weights,
  gradients and optimizer state, and the groups hold the same. hpZ (`zero_hpz_partition_size`) is not:
  it keeps gradients, optimizer state and one set of weight shards over all data ranks, and adds a
  second set inside a machine for the backward pass. Both train the same numbers.
- DeepSpeed can update on the GPU weights that live in the host's memory or on disk. Here the state
  that updates weights is never nearer than they are: `offload_param` without an equally far
  `offload_optimizer` moves all optimizer state there, and the host updates.

| key | what becomes of it |
|---|---|
)";

constexpr std::string_view kDeepSpeedEnding = R"(
*This page is made from the table in `src/config/deepspeed_keys.cpp`; `PLIMSOLL_UPDATE=1` in the environment of the test `config_reference` rewrites it.*
)";

std::string fate(const DeepSpeedKey& key) {
  const std::string unless = key.usual.empty() ? std::string() : fmt::format(" (unless `{}`)", key.usual);
  switch (key.effect) {
    case Effect::mapped: return fmt::format("sets {}", key.text);
    case Effect::harmless: return fmt::format("changes nothing: {}", key.text);
    case Effect::missing: return fmt::format("warned of{}: {}", unless, key.text);
    case Effect::refused: return fmt::format("refused{}: {}", unless, key.text);
  }
  return "?";
}

}  // namespace

std::string deepspeed_page() {
  std::string page(kDeepSpeedIntroduction);
  for (const DeepSpeedKey& key : deepspeed_keys()) page += fmt::format("| `{}` | {} |\n", key.path, fate(key));
  page += kDeepSpeedEnding;
  return page;
}

}  // namespace plimsoll::config
