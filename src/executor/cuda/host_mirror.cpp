#include "executor/cuda/host_mirror.h"

#include <utility>

#include "kernels/cuda/checks.h"

namespace plimsoll::executor {

using kernels::cuda::check;

// Both sides hold zeros at first, so every view is current.
HostMirror::HostMirror(const plan::RankClass& rank_class, AddressOf address)
    : class_(rank_class),
      address_(std::move(address)),
      memory_(rank_class.arena[static_cast<std::size_t>(plan::Tier::device)]),
      current_(rank_class.buffers.size(), true),
      written_(rank_class.buffers.size(), false) {}

std::byte* HostMirror::view(plan::BufferId buffer, plan::Access access) {
  const plan::Buffer& known = class_.buffers[buffer];
  std::byte* here = memory_.at(known.offset);
  if (access != plan::Access::write && !current_[buffer.index]) {
    check(cudaMemcpy(here, address_(buffer), static_cast<std::size_t>(known.bytes.count), cudaMemcpyDeviceToHost), "reading a buffer");
  }
  current_[buffer.index] = true;
  if (access != plan::Access::read && !written_[buffer.index]) {
    written_[buffer.index] = true;
    to_upload_.push_back(buffer);
  }
  return here;
}

bool HostMirror::write(plan::BufferId buffer, std::int64_t first, std::span<const std::byte> data) {
  if (written_[buffer.index]) return false;
  check(cudaMemcpy(address_(buffer) + first, data.data(), data.size(), cudaMemcpyHostToDevice), "writing a buffer");
  current_[buffer.index] = false;
  in_flight_ = true;
  return true;
}

bool HostMirror::read(plan::BufferId buffer, std::int64_t first, std::span<std::byte> out) const {
  if (current_[buffer.index]) return false;
  check(cudaMemcpy(out.data(), address_(buffer) + first, out.size(), cudaMemcpyDeviceToHost), "reading a buffer");
  return true;
}

void HostMirror::upload(cudaStream_t stream) {
  // Such a copy returns when the data have left their place, which is before they arrive, and streams of ours do not wait for it.
  if (in_flight_) check(cudaStreamSynchronize(nullptr), "writing a buffer");
  in_flight_ = false;
  for (const plan::BufferId buffer : to_upload_) {
    const plan::Buffer& known = class_.buffers[buffer];
    check(cudaMemcpyAsync(address_(buffer), memory_.at(known.offset), static_cast<std::size_t>(known.bytes.count), cudaMemcpyHostToDevice,
                          stream),
          "writing a buffer");
    written_[buffer.index] = false;
  }
  to_upload_.clear();
}

void HostMirror::forget() { current_.assign(current_.size(), false); }

}  // namespace plimsoll::executor
