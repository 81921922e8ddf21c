// What `train` says around its steps: where it starts, how much there is to do, when it will end, and how it goes on.
#pragma once

#include <cstdint>

#include "config/run.h"
#include "data/batch_reader.h"
#include "observe/clock.h"
#include "observe/event.h"
#include "train/run.h"

namespace plimsoll::cli {

// `until`: the step after which this start is to stop; 0: the last one.
void say_where_it_starts(const train::Resumed& resumed, const config::Run& run, std::int64_t until);

// Tokens of the data, and how much of it the steps that are left train on.
void say_how_much(const data::SampleSource& data, const config::Run& run, std::int64_t steps_done);

// Nothing where the run is finished.
void say_where_it_ends(const train::End& end);

// Says when the run will end, once a step has been timed.
class EndNotice final : public observe::Observer {
 public:
  EndNotice(observe::Observer& heard_by, const observe::Clock& clock, std::int64_t last)
      : heard_by_(heard_by), clock_(clock), last_(last) {}

  void on(const observe::Event& event) override;

 private:
  observe::Observer& heard_by_;
  const observe::Clock& clock_;
  std::int64_t last_;
  int seen_ = 0;
  double seconds_ = 0.0;
};

}  // namespace plimsoll::cli
