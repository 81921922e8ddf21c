// One block of a GPU's memory for everything a rank keeps there; buffers are offsets into it. It holds zeros at first.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace plimsoll::storage {

class DeviceArena {
 public:
  // Takes the memory of the device that is current for this thread. bad_input, with the bytes asked for and free, when there
  // is not enough: another process may hold it.
  explicit DeviceArena(base::Bytes size);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  std::byte* at(base::Bytes offset) const { return memory_ + offset.count; }
  base::Bytes size() const { return size_; }

 private:
  std::byte* memory_ = nullptr;
  base::Bytes size_;
};

}  // namespace plimsoll::storage
