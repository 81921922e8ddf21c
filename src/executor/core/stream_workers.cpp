#include "executor/core/stream_workers.h"

#include "executor/core/tokens.h"

namespace plimsoll::executor {

StreamWorkers::StreamWorkers(std::size_t workers) {
  for (std::size_t stream = 1; stream <= workers; ++stream) threads_.emplace_back([this, stream] { work(stream); });
}

StreamWorkers::~StreamWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StreamWorkers::run(std::size_t streams, const std::function<void(std::size_t)>& job,
                        const std::function<void(const std::exception_ptr&)>& failed) {
  {
    const std::lock_guard lock(mutex_);
    ++round_;
    streams_ = streams;
    busy_ = streams - 1;
    job_ = &job;
    failed_ = &failed;
    error_ = nullptr;
  }
  changed_.notify_all();
  guarded(0, job, failed);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void StreamWorkers::guarded(std::size_t stream, const std::function<void(std::size_t)>& job,
                            const std::function<void(const std::exception_ptr&)>& failed) {
  try {
    job(stream);
  } catch (const StreamFailed&) {
    // Another stream has the cause.
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    failed(std::current_exception());
  }
}

void StreamWorkers::work(std::size_t stream) {
  std::uint64_t seen = 0;
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    if (stream >= streams_) continue;
    lock.unlock();
    guarded(stream, *job_, *failed_);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace plimsoll::executor
