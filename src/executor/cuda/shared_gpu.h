// The streams that a GPU's programs run on, and what executors of plans that run in turn have in common there (Backend::share): those, and
// the memory that a program has for itself while it runs. Captured steps keep their addresses: the memory stays where it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/core/shared_device.h"
#include "executor/core/stream_workers.h"
#include "executor/cuda/handles.h"
#include "plan/plan.h"
#include "storage/cuda/device_arena.h"
#include "storage/cuda/pinned_arena.h"

namespace plimsoll::executor {

// Of the program with the most of them.
std::size_t most_streams(const plan::RankClass& rank_class);

// CUDA streams, and a thread for each beside the first, for programs that are issued apart.
class StreamSet {
 public:
  explicit StreamSet(std::size_t count);

  std::size_t size() const { return streams_.size(); }
  cudaStream_t at(std::size_t stream) const { return streams_[stream].get(); }
  StreamWorkers& threads();

 private:
  std::vector<Stream> streams_;
  std::unique_ptr<StreamWorkers> workers_;  // made when they are first wanted
};

class SharedGpu final : public SharedDevice {
 public:
  SharedGpu(std::span<const plan::Plan* const> plans, std::int32_t rank);

  std::span<std::byte> passing(plan::Tier tier) const override;
  int device() const { return device_; }
  StreamSet& streams() { return streams_; }

 private:
  int device_;
  storage::DeviceArena arena_;
  storage::PinnedArena host_arena_;
  StreamSet streams_;
};

}  // namespace plimsoll::executor
