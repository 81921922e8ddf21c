// The loss over data.valid: the same in the middle of a run and from `plimsoll eval`.
#pragma once

#include <memory>

#include "config/run.h"
#include "data/batch_reader.h"
#include "io/file_system.h"
#include "observe/clock.h"
#include "observe/event.h"
#include "train/session/session.h"

namespace plimsoll::train {

class Evaluator {
 public:
  Evaluator(io::FileSystem& file_system, const config::Run& run);

  // Over run.eval.batches batches in file order (0: all of data.valid); the session needs an evaluation program.
  observe::Evaluation run(Session& session, const observe::Clock& clock) const;

  // Micro-batches of that, those of all data ranks together.
  std::int64_t batches() const;

  const data::BatchReader& reader() const { return *reader_; }

 private:
  std::int64_t sequences() const;

  config::Run run_;
  std::shared_ptr<const data::BatchReader> reader_;
};

}  // namespace plimsoll::train
