// What `train` says around its steps: where it starts, how much there is to do, when it will end, and how it goes on.
#pragma once

#include <cstdint>

#include "config/run.h"
#include "data/batch_reader.h"
#include "observe/clock.h"
#include "observe/event.h"
#include "train/checkpoints.h"

namespace plimsoll::cli {

// `until`: the step after which this start is to stop; 0: the last one.
void say_where_it_starts(const train::Resumed& resumed, const config::Run& run, std::int64_t until);

// Tokens of the data, and how much of it the steps that are left train on.
void say_how_much(const data::BatchReader& data, const config::Run& run, std::int64_t steps_done);

struct End {
  std::int64_t began = 0;  // steps that were done at the start
  std::int64_t done = 0;
  std::int64_t until = 0;  // as above
  bool stopped = false;    // by a signal
};
// Nothing where the run is finished.
void say_where_it_ends(const End& end, const config::Run& run);

// Says when the run will end, once a step has been timed.
class EndNotice final : public observe::Observer {
 public:
  EndNotice(observe::Observers& observers, const observe::Clock& clock, std::int64_t last)
      : observers_(observers), clock_(clock), last_(last) {}

  void on(const observe::Event& event) override;

 private:
  observe::Observers& observers_;
  const observe::Clock& clock_;
  std::int64_t last_;
  int seen_ = 0;
  double seconds_ = 0.0;
};

}  // namespace plimsoll::cli
