#include "collectives/mpi/alarm.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::collectives::mpi {

namespace {
constexpr std::chrono::milliseconds kAsk{100};
}

Alarm::Alarm(double seconds, std::string what, std::function<std::optional<std::string>()> loss) {
  watcher_ = std::thread([this, seconds, what = std::move(what), loss = std::move(loss)] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::optional<std::string> why;
    std::unique_lock lock(mutex_);
    while (!why && std::chrono::steady_clock::now() < end) {
      if (changed_.wait_for(lock, kAsk, [&] { return over_; })) return;
      if (loss) why = loss();
    }
    if (!why) why = fmt::format("another rank did not come within the limit of {:g} s", seconds);
    fmt::print(stderr, "plimsoll: {}: {}\n", what, *why);
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
