// Cuts a kernel's scratch into aligned pieces. A kernel describes its pieces once, in a function that takes a
// Workspace; run without memory it only counts bytes, which is what Kernel::workspace answers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::kernels::cuda {

class Workspace {
 public:
  explicit Workspace(std::byte* memory = nullptr) : memory_(memory) {}

  template <typename T>
  T* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    const auto needed = count * static_cast<std::int64_t>(sizeof(T));
    bytes_ += (needed + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kAlignment = 256;
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace plimsoll::kernels::cuda
