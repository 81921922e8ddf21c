// What happens in a run, as typed values. Training emits them to an Observer; each writer takes what concerns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace plimsoll::observe {

// Highest use of each tier's arenas so far, in bytes. A tier that the run does not have is absent.
struct TierBytes {
  std::optional<std::int64_t> device = {};
  std::optional<std::int64_t> host = {};
  std::optional<std::int64_t> disk = {};
};

struct RunStarted {
  std::int64_t first_step = 1;  // more than 1 when resumed
  std::int64_t last_step = 0;
  std::string name = {};  // for people: the model, the strategy
};

struct Evaluation {
  double loss = 0.0;
  std::int64_t tokens = 0;
  double seconds = 0.0;
  std::int64_t sequences = 0;  // that were looked at
  std::int64_t all = 0;        // of the data
};

// What a device reports of itself.
struct DeviceUse {
  std::int64_t memory_bytes = 0;  // of all processes
  double watts = 0.0;
  double megahertz = 0.0;
};

struct StepDone {
  std::int64_t step = 0;   // counted from 1
  double loss = 0.0;       // before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
  TierBytes peak_bytes = {};
  std::optional<DeviceUse> device = {};       // where it tells
  std::optional<double> loss_scale = {};      // fp16
  bool skipped = false;                       // the update was not made because of an overflow
  std::optional<Evaluation> evaluation = {};  // where one was due after this step
};

struct CheckpointSaved {
  std::int64_t step = 0;
  std::string path;
  double seconds = 0.0;
  std::optional<double> stalled = {};  // how much of it training waited for, where it went on meanwhile
};

// Something to tell the user that belongs to no step.
struct Notice {
  enum class Level { info, warning };
  Level level = Level::info;
  std::string text;
};

struct RunEnded {
  std::int64_t step = 0;  // the last one done
};

using Event = std::variant<RunStarted, StepDone, CheckpointSaved, Notice, RunEnded>;

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on(const Event& event) = 0;
};

// Passes each event to several, in order. They must outlive it.
class Observers final : public Observer {
 public:
  void add(Observer& observer) { observers_.push_back(&observer); }
  void on(const Event& event) override {
    for (Observer* observer : observers_) observer->on(event);
  }

 private:
  std::vector<Observer*> observers_;
};

}  // namespace plimsoll::observe
