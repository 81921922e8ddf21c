// How long a member waits for another one's message (or for room for one): until that rank is lost or the limit has passed.
#pragma once

#include <chrono>
#include <string>

#include "collectives/group.h"
#include "collectives/local/watch.h"
#include "collectives/transport.h"

namespace plimsoll::collectives::local {

class Patience {
 public:
  Patience(const Group& group, const Call& call, Watch& watch, const Limits& limits);
  // Throws peer_lost when waiting on is in vain.
  void look() const;

 private:
  [[noreturn]] void fail(const std::string& clause) const;

  const Group& group_;
  const Call& call_;
  Watch& watch_;
  double limit_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace plimsoll::collectives::local
