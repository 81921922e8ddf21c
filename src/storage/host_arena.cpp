#include "storage/host_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace plimsoll::storage {

HostArena::HostArena(base::Bytes size) : size_(size) {
  if (size.count == 0) return;
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(size.count), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    base::not_legal("the system refused {} of memory ({}); use a smaller batch or model, or a limit the machine can hold",
                    base::to_string(size), std::strerror(errno));
  }
  madvise(memory, static_cast<std::size_t>(size.count), MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
}

HostArena::HostArena(HostArena&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, {})) {}

HostArena::~HostArena() {
  if (memory_ != nullptr) munmap(memory_, static_cast<std::size_t>(size_.count));
}

}  // namespace plimsoll::storage
