// Ranks as threads of one process: the default, which needs nothing installed. Members read and write each other's memory directly;
// each folds its share of a reduction.
#pragma once

#include <functional>
#include <memory>

#include "collectives/transport.h"

namespace plimsoll::collectives::local {

class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks, const Limits& limits = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  // For the thread that is rank `rank`. Groups may outlive neither.
  Transport& transport(int rank);
  // That rank ended well: whoever still waits for it is told so.
  void leave(int rank);
  int first_lost() const;  // the rank whose abort() came first; -1 when none did

  struct State;

 private:
  std::shared_ptr<State> state_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// Runs body(transport) for each rank on a thread of its own and returns when all have ended. A rank that throws aborts the
// others; the exception that came first is thrown here, once.
void run_threads(int ranks, const std::function<void(Transport&)>& body, const Limits& limits = {});

}  // namespace plimsoll::collectives::local
