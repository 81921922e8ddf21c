// One block of memory for everything a rank keeps in a tier; buffers are offsets into it. Pages are taken on first
// touch; large pages are asked for, because most of a step walks through memory in order.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace plimsoll::storage {

class HostArena {
 public:
  // Throws not_legal with the bytes when the system refuses.
  explicit HostArena(base::Bytes size);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&&) = delete;

  std::byte* at(base::Bytes offset) const { return memory_ + offset.count; }
  base::Bytes size() const { return size_; }

 private:
  std::byte* memory_ = nullptr;
  base::Bytes size_;
};

}  // namespace plimsoll::storage
