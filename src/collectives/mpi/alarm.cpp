#include "collectives/mpi/alarm.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::collectives::mpi {

Alarm::Alarm(double seconds, std::string what) {
  watcher_ = std::thread([this, seconds, what = std::move(what)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; })) return;
    fmt::print(stderr, "plimsoll: {}: another rank did not come within the limit of {:g} s\n", what, seconds);
    std::_Exit(static_cast<int>(base::ErrorKind::peer_lost));  // the caller's thread is inside MPI: nothing can be taken down in order
  });
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

}  // namespace plimsoll::collectives::mpi
