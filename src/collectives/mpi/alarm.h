// Ends this process when a call into MPI takes longer than ranks may wait for each other.
//
// Starting MPI, making communicators and ending MPI wait for other ranks inside the library, where nothing can be tested from outside
// and nothing thrown: a rank that was stopped meanwhile would hold up all others for ever. So the rank that waits says what in, and
// leaves with the exit code of a lost peer; the launcher ends the rest.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace plimsoll::collectives::mpi {

class Alarm {
 public:
  // `what`: "rank 1 waited in vain in MPI_Init_thread".
  // `loss` is asked meanwhile: a clause about a rank that is known to be lost.
  Alarm(double seconds, std::string what, std::function<std::optional<std::string>()> loss = {});
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace plimsoll::collectives::mpi
