// What a rank's groups did last, and when: kept in memory, written to a file when another rank is lost or does not come. Side by side
// the files of all ranks show who is behind, and in which call.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/call.h"

namespace plimsoll::collectives {

class CallLog {
 public:
  static constexpr std::size_t kKept = 1024;

  struct Entry {
    Call call{};
    std::string group{};
    double began = 0.0;  // unix seconds
    double ended = 0.0;  // 0: it has not come back
  };

  // Thread-safe, and without allocation once the ring has been filled. Returns what `end` takes.
  std::uint64_t begin(const std::string& group, const Call& call);
  void end(std::uint64_t number);

  std::vector<Entry> last() const;  // oldest first
  std::uint64_t count() const;      // of all calls so far
  std::string text(int rank, int ranks) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  std::uint64_t count_ = 0;
};

}  // namespace plimsoll::collectives
