#include "checkpoint/background_save.h"

#include <chrono>
#include <limits>

namespace plimsoll::checkpoint {

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundSave::start(SaveRequest request, std::vector<TensorSource> tensors, std::function<void()> prepare) {
  start(std::move(request), [this, tensors = std::move(tensors), prepare = std::move(prepare)](const SaveRequest& given) {
    if (prepare) prepare();
    return save(file_system_, folder_, given, tensors);
  });
}

void BackgroundSave::start(SaveRequest request, Job job) {
  PLIMSOLL_CHECK(!thread_.joinable(), "a save is in flight; collect it first");
  read_ = 0;
  ended_ = false;
  failure_ = nullptr;
  given_up_ = false;
  request.given_up = [this] { return given_up_.load(); };
  request.was_read = [this](std::size_t count) {
    {
      const std::lock_guard lock(mutex_);
      read_ = count;
    }
    changed_.notify_all();
  };
  thread_ = std::thread([this, request = std::move(request), job = std::move(job)] { run(request, job); });
}

void BackgroundSave::run(const SaveRequest& request, const Job& job) {
  SaveResult result;
  std::exception_ptr failure;
  try {
    result = job(request);
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

void BackgroundSave::wait_until_read(std::size_t count, const std::atomic<bool>* stop) {
  constexpr std::chrono::milliseconds kLook{10};  // between two looks at `stop`, which a signal handler may set
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return read_ >= count; })) {
    if (stop != nullptr && stop->load()) give_up();
  }
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
