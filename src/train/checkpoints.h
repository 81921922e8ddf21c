// A run's checkpoints: what of a session goes into them, and how a run finds its way back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_save.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "config/run.h"
#include "io/file_system.h"
#include "observe/event.h"
#include "train/stored/snapshot.h"
#include "train/trainer.h"

namespace plimsoll::train {

struct Resumed {
  std::optional<std::string> from;  // nothing: the run starts at its beginning
  std::int64_t steps_done = 0;
  std::vector<std::string> problems;  // why newer checkpoints were passed over
  std::string other_data = {};        // what it was trained on, where the run goes on with something else
};

// What saving needs of its surroundings.
struct SaveContext {
  observe::Observer& observer;           // hears of saves and of full disks
  const std::atomic<bool>& stop_wanted;  // ends the wait for room on a full disk, and that of a step for a save
  std::function<void()> make_durable;    // runs before each save: the records that go with it must not be lost later
};

class Checkpoints {
 public:
  Checkpoints(io::FileSystem& file_system, const config::Run& run, std::string folder);
  ~Checkpoints();

  // Continues from the newest valid checkpoint, if there is one: weights, moments, step scalars, data position.
  Resumed resume(Trainer& trainer);
  // Before the first step, on all ranks: the folder, and whether there is room for the checkpoints of a run of `steps`. What a run cannot
  // do without is refused now, unless the policy is to wait for room; words say that there is too little for all.
  std::string prepare(Trainer& trainer, std::int64_t steps);
  // At a step's end, on all ranks. With checkpoint.async the save runs on beside training, and how it ended is told by a
  // later call; at most one is in flight. A full disk follows checkpoint.on_full_disk.
  void save(Trainer& trainer, const SaveContext& context);
  // At every step's end: tells of a save that has ended, and throws what went wrong with it.
  void poll(Trainer& trainer, const SaveContext& context);
  // Where a stop is wanted and more steps were done since the save in flight: gives it up, so that the one that follows need not
  // wait for it. On all ranks.
  void drop(Trainer& trainer, const SaveContext& context);
  // At the end of the run: waits for the save in flight.
  void settle(Trainer& trainer, const SaveContext& context);
  // Removes all checkpoints of the run.
  void forget();

 private:
  checkpoint::Search load_together(Session& session);
  std::int64_t most_to_come(std::int64_t steps_done, std::int64_t steps, std::int64_t keep) const;
  checkpoint::SaveRequest request_of(Trainer& trainer);
  void start(Trainer& trainer, const SaveContext& context, bool& full);
  void save_now(Trainer& trainer, const SaveContext& context);
  void collect(Trainer& trainer, const SaveContext& context, checkpoint::BackgroundSave::Wait wait);
  bool look(checkpoint::BackgroundSave::Wait wait);
  void begin_commit(collectives::Group* world);
  bool give_up(Trainer& trainer);
  void end();
  void tell(const SaveContext& context, const checkpoint::SaveResult& result) const;
  bool wait_for_room(Trainer& trainer, const SaveContext& context, bool full, std::string_view problem) const;

  io::FileSystem& file_system_;
  checkpoint::Identity identity_;
  std::string data_;
  config::Checkpoint settings_;
  std::string folder_;
  std::optional<Snapshot> snapshot_;
  std::vector<std::byte> scalars_;  // as they were when the save began
  // What runs beside training: a whole save, or of several ranks' first everybody's part, then the first's commit.
  enum class Stage { none, whole, parts, commit } stage_ = Stage::none;
  checkpoint::SaveRequest request_;  // of the save in flight
  checkpoint::Part part_;            // this rank's; the writer's thread until its stage has ended
  checkpoint::SaveResult result_;    // of the stage that ended last
  checkpoint::BackgroundSave background_;
  executor::Executor* guarded_ = nullptr;  // asks before it overwrites what is being saved
  std::int64_t step_ = 0;                  // of the save in flight, or the last one
  double began_ = 0.0;
  std::atomic<double> stalled_ = 0.0;  // how long training waited for it
};

}  // namespace plimsoll::train
