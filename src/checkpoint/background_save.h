// A save that runs beside training.
//
// Nothing is copied first: between two updates neither weights nor optimizer state change, so the writer reads them where
// they are while the next step's forward and backward passes run. Whoever is about to change tensor k first waits until
// the writer has read it (wait_until_read). One save is in flight at most, and how it ended is told when it is collected.
//
//   saver.start(request, tensors);      // at a step's end
//   saver.wait_until_read(k + 1);       // before tensors[k] is written again
//   if (const auto saved = saver.collect(BackgroundSave::Wait::no)) report(*saved);  // at a later step's end; throws what went wrong
//
// A save that nobody needs any more, because a later state is to be saved at once, can be given up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/save.h"

namespace plimsoll::checkpoint {

class BackgroundSave {
 public:
  enum class Wait { no, yes };

  BackgroundSave(io::FileSystem& file_system, io::Path folder) : file_system_(file_system), folder_(std::move(folder)) {}
  ~BackgroundSave();  // waits for the save in flight; a failure that nobody collected is lost
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // The save before this one must have been collected. `prepare` runs first, on the writer's thread.
  void start(SaveRequest request, std::vector<TensorSource> tensors, std::function<void()> prepare = {});
  // The same for a part of a save, or its commit: `job` is called with the request, whose was_read it must use.
  using Job = std::function<SaveResult(const SaveRequest& request)>;
  void start(SaveRequest request, Job job);
  bool in_flight() const { return thread_.joinable(); }

  // Returns when the first `count` tensors may be changed: read, or the save has ended, whichever way. Where `stop` comes true
  // meanwhile, the save is given up.
  void wait_until_read(std::size_t count, const std::atomic<bool>* stop = nullptr);

  // The save in flight ends soon, with nothing left of it unless it is as good as done; collect() then throws.
  void give_up() { given_up_ = true; }

  // What became of the save in flight. Nothing when there is none, or (Wait::no) when it has not ended.
  std::optional<SaveResult> collect(Wait wait);

 private:
  void run(const SaveRequest& request, const Job& job);

  io::FileSystem& file_system_;
  const io::Path folder_;
  std::thread thread_;
  std::atomic<bool> given_up_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::size_t read_ = 0;  // tensors that may be changed
  bool ended_ = false;
  SaveResult result_;
  std::exception_ptr failure_;
};

}  // namespace plimsoll::checkpoint
