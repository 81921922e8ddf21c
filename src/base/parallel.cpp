#include "base/parallel.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "base/cores.h"

namespace plimsoll::base {

std::int64_t threads_for_bytes(std::int64_t bytes) {
  constexpr std::int64_t kBytesPerThread = std::int64_t{8} << 20;
  constexpr std::int64_t kMostThreads = 4;
  const std::int64_t cores = usable_cores();
  return std::clamp<std::int64_t>(bytes / kBytesPerThread, 1, std::min(cores, kMostThreads));
}

void in_parallel(std::int64_t threads, const std::function<void(std::int64_t thread)>& work) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  const auto guarded = [&](std::int64_t thread) {
    try {
      work(thread);
    } catch (...) {
      failures[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // joined also when one of them cannot be started
    for (std::int64_t thread = 1; thread < threads; ++thread) others.emplace_back(guarded, thread);
    guarded(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace plimsoll::base
