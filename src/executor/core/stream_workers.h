// One thread for each stream of a program beside the first, kept from run to run.
//
// run() gives every worker its job, does the first itself, and returns when all are done. The first error is thrown; what
// other streams died of because of it is not.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plimsoll::executor {

class StreamWorkers {
 public:
  explicit StreamWorkers(std::size_t workers);
  ~StreamWorkers();
  StreamWorkers(const StreamWorkers&) = delete;
  StreamWorkers& operator=(const StreamWorkers&) = delete;

  // job(0) runs here, job(1) .. job(streams - 1) on the workers. `failed` is called at once when a job throws, so that the
  // others do not wait for it.
  void run(std::size_t streams, const std::function<void(std::size_t)>& job, const std::function<void(const std::exception_ptr&)>& failed);

 private:
  void work(std::size_t stream);
  void guarded(std::size_t stream, const std::function<void(std::size_t)>& job,
               const std::function<void(const std::exception_ptr&)>& failed);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t streams_ = 0;  // of this round
  std::size_t busy_ = 0;
  bool stopping_ = false;
  const std::function<void(std::size_t)>* job_ = nullptr;
  const std::function<void(const std::exception_ptr&)>* failed_ = nullptr;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll::executor
