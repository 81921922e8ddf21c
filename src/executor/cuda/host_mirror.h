// What the host sees of a rank's buffers on the device: memory of the plan's layout, of which only the pages that somebody looks at exist.
//
// A buffer's view is brought up to date when it is asked for, and what the host wrote goes to the device before the next
// program. Between the two nothing is copied, so a step costs the inputs up and the step scalars down.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "storage/host_arena.h"

namespace plimsoll::executor {

class HostMirror {
 public:
  // Where a buffer is on the device; it is asked for as long as the mirror is there.
  using AddressOf = std::function<std::byte*(plan::BufferId)>;
  HostMirror(const plan::RankClass& rank_class, AddressOf address);

  std::byte* view(plan::BufferId buffer, plan::Access access);
  // Writes to the device at once, without pages here; false: the view holds newer bytes than the device, so it must be written instead.
  bool write(plan::BufferId buffer, std::int64_t first, std::span<const std::byte> data);
  // Reads from the device, without pages here; false: the view is current, so it must be read instead.
  bool read(plan::BufferId buffer, std::int64_t first, std::span<std::byte> out) const;
  // Puts what was written since the last program on the stream.
  void upload(cudaStream_t stream);
  // A program has run: nothing that was seen before is current.
  void forget();

 private:
  const plan::RankClass& class_;
  AddressOf address_;
  storage::HostArena memory_;
  std::vector<bool> current_;  // by buffer: the view is what the device holds, or newer
  std::vector<bool> written_;
  std::vector<plan::BufferId> to_upload_;
  bool in_flight_ = false;  // something that write() began may not have arrived
};

}  // namespace plimsoll::executor
