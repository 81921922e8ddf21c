// Messages between processes: a ring of slips for each ordered pair of members, and buffers that the sender allots in shared
// memory and uses again once the receiver has taken what they held. A sender waits only when kSlips messages to one receiver are
// under way.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "collectives/group.h"
#include "collectives/local/shared_memory.h"

namespace plimsoll::collectives::local {

// One direction of one pair; zeroed memory is an empty one.
struct Lane {
  static constexpr std::uint32_t kSlips = 1024;
  enum class State : std::uint32_t { free, under_way, taken };
  struct Slip {
    std::atomic<State> state;
    std::int32_t tag;
    std::uint64_t bytes;
    std::uint64_t offset;
  };
  Word sent;   // messages put, ever
  Word taken;  // messages taken, ever
  std::array<Slip, kSlips> slips;
};

class SharedSender {
 public:
  SharedSender(SharedMemory& memory, Lane& lane) : memory_(&memory), lane_(&lane) {}
  void put(int tag, Input data, const std::function<void()>& look);

 private:
  struct Buffer {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  void collect();  // buffers of messages that were taken
  Buffer buffer_for(std::size_t bytes);

  SharedMemory* memory_;
  Lane* lane_;
  std::uint32_t next_ = 0;       // slip to fill
  std::uint32_t collected_ = 0;  // slips before it are free again
  std::vector<Buffer> under_way_{std::vector<Buffer>(Lane::kSlips)};
  std::vector<Buffer> spares_;
};

class SharedReceiver {
 public:
  SharedReceiver(SharedMemory& memory, Lane& lane) : memory_(&memory), lane_(&lane) {}
  // As Mailbox::take.
  std::size_t take(int tag, Output data, const std::function<void()>& look);

 private:
  std::optional<std::uint32_t> find(int tag, std::uint32_t sent) const;
  void finish(std::uint32_t index, std::uint32_t sent);

  SharedMemory* memory_;
  Lane* lane_;
  std::uint32_t first_ = 0;  // all messages before it were taken
  std::vector<bool> done_{std::vector<bool>(Lane::kSlips)};
};

}  // namespace plimsoll::collectives::local
