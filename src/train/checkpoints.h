// A run's checkpoints: what of a session goes into them, and how a run finds its way back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "config/run.h"
#include "io/file_system.h"
#include "observe/event.h"
#include "train/trainer.h"

namespace plimsoll::train {

struct Resumed {
  std::optional<std::string> from;  // nothing: the run starts at its beginning
  std::int64_t steps_done = 0;
  std::vector<std::string> problems;  // why newer checkpoints were passed over
};

class Checkpoints {
 public:
  Checkpoints(io::FileSystem& file_system, const config::Run& run, std::string folder);

  // Continues from the newest valid checkpoint, if there is one: weights, moments, step scalars, data position.
  Resumed resume(Trainer& trainer);
  observe::CheckpointSaved save(Trainer& trainer);
  // Removes all checkpoints of the run.
  void forget();

 private:
  checkpoint::Search load_together(Session& session);

  io::FileSystem& file_system_;
  checkpoint::Identity identity_;
  std::int64_t keep_;
  std::string folder_;
};

}  // namespace plimsoll::train
