// The host's memory beside a GPU, for what a rank keeps there: pinned, so that copies run beside both processors at the link's rate.
#pragma once

#include "storage/host_arena.h"

namespace plimsoll::storage {

class PinnedArena {
 public:
  // not_legal, with the bytes, when the system does not give or pin so much.
  explicit PinnedArena(base::Bytes size);
  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  std::byte* at(base::Bytes offset) const { return memory_.at(offset); }
  base::Bytes size() const { return memory_.size(); }

 private:
  HostArena memory_;
};

}  // namespace plimsoll::storage
