// State that says itself how it is kept (ops/state.h), as the plan has it: under which names it is in a checkpoint, and how a checkpoint of
// another number of ranks is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/load.h"
#include "io/file_system.h"
#include "train/session/session.h"

namespace plimsoll::train {

struct KeptState {
  std::string name;  // of the whole tensor
  ops::State state;
  base::TensorType whole;
  std::int64_t ranks = 1;  // that share out the batch, where the state is
};

// Of all ranks, each once.
std::vector<KeptState> kept_states(const plan::Plan& plan);

// In a checkpoint, where each data rank has its own: "blocks.0.mean@data.2".
std::string name_of_rank(const std::string& state, std::int64_t data_place);

// Fills what this rank holds from a checkpoint, whatever number of ranks wrote it: what data ranks had of their own is merged by its rule,
// summands of ranks in the order of the ranks.
void load_held(io::FileSystem& file_system, const checkpoint::Checkpoint& checkpoint, Session& session);

}  // namespace plimsoll::train
