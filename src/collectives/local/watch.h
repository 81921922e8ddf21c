// Knows who is lost. Whoever waits for other ranks looks here every few milliseconds, so that no wait is in vain for long.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace plimsoll::collectives::local {

class Watch {
 public:
  virtual ~Watch() = default;
  // A clause that names the rank and what happened to it: "rank 2 failed: ..."; nothing while there is no reason to stop
  // waiting for `ranks`. One rank that cannot go on stops all of them; one that ended well only those that wait for it.
  virtual std::optional<std::string> lost(std::span<const int> ranks) = 0;
};

}  // namespace plimsoll::collectives::local
