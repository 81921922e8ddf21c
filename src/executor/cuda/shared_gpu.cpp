#include "executor/cuda/shared_gpu.h"

#include <algorithm>

#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/device.h"

namespace plimsoll::executor {

namespace {

std::size_t streams_for(std::span<const plan::Plan* const> plans, std::int32_t rank) {
  std::size_t streams = 1;
  for (const plan::Plan* plan : plans) streams = std::max(streams, most_streams(plan::class_of(*plan, rank)));
  return streams;
}

}  // namespace

std::size_t most_streams(const plan::RankClass& rank_class) {
  std::size_t streams = 1;
  for (const plan::Program& program : rank_class.programs) streams = std::max(streams, program.streams.size());
  return streams;
}

StreamSet::StreamSet(std::size_t count) {
  while (streams_.size() < count) streams_.push_back(make_stream());
}

StreamWorkers& StreamSet::threads() {
  if (workers_ == nullptr) workers_ = std::make_unique<StreamWorkers>(streams_.size() - 1);
  return *workers_;
}

SharedGpu::SharedGpu(std::span<const plan::Plan* const> plans, std::int32_t rank)
    : device_(use_gpu(rank)),
      arena_(passing_bytes(plans, rank, plan::Tier::device)),
      host_arena_(passing_bytes(plans, rank, plan::Tier::host)),
      streams_(streams_for(plans, rank)) {}

std::span<std::byte> SharedGpu::passing(plan::Tier tier) const {
  if (tier == plan::Tier::device) return {arena_.at({}), static_cast<std::size_t>(arena_.size().count)};
  if (tier == plan::Tier::host) return {host_arena_.at({}), static_cast<std::size_t>(host_arena_.size().count)};
  return {};
}

std::unique_ptr<SharedDevice> share_gpu(std::span<const plan::Plan* const> plans, std::int32_t rank) {
  return std::make_unique<SharedGpu>(plans, rank);
}

}  // namespace plimsoll::executor
