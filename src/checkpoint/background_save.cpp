#include "checkpoint/background_save.h"

#include <limits>

namespace plimsoll::checkpoint {

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundSave::start(SaveRequest request, std::vector<TensorSource> tensors, std::function<void()> prepare) {
  PLIMSOLL_CHECK(!thread_.joinable(), "a save is in flight; collect it first");
  read_ = 0;
  ended_ = false;
  failure_ = nullptr;
  request.was_read = [this](std::size_t count) {
    {
      const std::lock_guard lock(mutex_);
      read_ = count;
    }
    changed_.notify_all();
  };
  thread_ = std::thread(
      [this, request = std::move(request), tensors = std::move(tensors), prepare = std::move(prepare)] { run(request, tensors, prepare); });
}

void BackgroundSave::run(const SaveRequest& request, std::span<const TensorSource> tensors, const std::function<void()>& prepare) {
  SaveResult result;
  std::exception_ptr failure;
  try {
    if (prepare) prepare();
    result = save(file_system_, folder_, request, tensors);
  } catch (...) {  // told to whoever collects; also what tests throw to end a process
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    failure_ = failure;
    ended_ = true;
    read_ = std::numeric_limits<std::size_t>::max();
  }
  changed_.notify_all();
}

void BackgroundSave::wait_until_read(std::size_t count) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return read_ >= count; });
}

std::optional<SaveResult> BackgroundSave::collect(Wait wait) {
  if (!thread_.joinable()) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (wait == Wait::no && !ended_) return std::nullopt;
  }
  thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::move(result_);
}

}  // namespace plimsoll::checkpoint
