// The training loop of one rank: read, step, report, evaluate; everything that is not in a program. With several ranks
// each runs this loop and they move from step to step together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "config/run.h"
#include "data/batch_reader.h"
#include "io/file_system.h"
#include "observe/clock.h"
#include "observe/event.h"
#include "train/session/session.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

struct TrainContext {
  io::FileSystem& file_system;
  observe::Observer& observer;
  const observe::Clock& clock;
  const std::atomic<bool>& stop_wanted;         // finish the step in hand, save and return
  collectives::Transport* transport = nullptr;  // to the other ranks of the run's strategy
};

// What a resumed run must know beside the session's buffers.
struct Progress {
  std::int64_t steps_done = 0;
  std::int64_t cursor = 0;  // the next sample

  bool operator==(const Progress&) const = default;
};

class Trainer {
 public:
  // A run that names a model folder starts without weights: whoever makes its trainer loads them.
  Trainer(const config::Run& run, TrainContext context);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Session& session();
  Progress& progress();
  const Progress& progress() const;
  const data::SampleSource& train_data() const;
  // What the run may take, and what it takes beside its arenas: measured once the data were open, before the arenas were made.
  const Capacity& capacity() const;
  // Which samples these are: how many, and a sum over some of them.
  const std::string& data_digest() const;

  struct Hooks {
    std::function<void(Trainer&)> save;         // after steps that end at a checkpoint's place, and when the run stops
    std::function<void(Trainer&)> poll = {};    // (optional) after every step: saves that run beside training are looked at
    std::function<void(Trainer&)> drop = {};    // (optional) before the save when the run stops: one in flight may be given up
    std::function<void(Trainer&)> settle = {};  // (optional) at the end: what runs beside training is waited for
    executor::Timeline* timeline = nullptr;     // of the second step (the first also touches fresh memory)
    std::int64_t until = 0;                     // stop after this step, as if it were wanted then; 0: after the last
  };

  // Trains until run.steps are done or a stop is wanted.
  void run(const Hooks& hooks);

  // The steps until ranks are at the same one again: one, or as many as the strategy has until a flush.
  std::vector<observe::StepDone> round(executor::Timeline* timeline = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::train
