#include "collectives/local/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace plimsoll::collectives::local {

namespace {

// Addresses, not memory.
constexpr std::size_t kBytes = std::size_t{1} << 36;
constexpr std::size_t kPage = 4096;

std::size_t rounded_to_page(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::byte* map(int file) {
  void* base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (base == MAP_FAILED) {
    base::fail(base::ErrorKind::other, "shared memory cannot be mapped: {}; --ranks without --processes runs ranks as threads",
               std::strerror(errno));
  }
  return static_cast<std::byte*>(base);
}

template <std::size_t size>
void keep(std::array<char, size>& where, const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(where.data(), text.data(), length);
  where[length] = '\0';
}

template <std::size_t size>
std::string kept(const std::array<char, size>& where) {
  return {where.data(), strnlen(where.data(), size)};
}

}  // namespace

SharedMemory SharedMemory::create(int ranks, const Limits& limits) {
  PLIMSOLL_CHECK(ranks > 0 && ranks <= kMostProcesses, "{} processes", ranks);
  const int file = memfd_create("plimsoll", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) {
    base::fail(base::ErrorKind::other, "shared memory cannot be made: {}", std::strerror(errno));
  }
  SharedMemory memory(file, map(file));
  Control& control = memory.control();
  control.magic = Control::kMagic;
  control.ranks = ranks;
  control.limits = limits;
  control.next.store(rounded_to_page(sizeof(Control)));
  return memory;
}

SharedMemory SharedMemory::adopt(int file) {
  struct stat status{};
  if (fstat(file, &status) != 0 || status.st_size != static_cast<off_t>(kBytes)) {
    base::bad_input("file descriptor {} is not the memory of supervised ranks; processes like this one are started by --processes only",
                    file);
  }
  SharedMemory memory(file, map(file));
  fcntl(file, F_SETFD, FD_CLOEXEC);
  if (memory.control().magic != Control::kMagic) {
    base::bad_input("the supervised ranks' memory was made by another version of this program; start all ranks from one program");
  }
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)), base_(std::exchange(other.base_, nullptr)) {}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) munmap(base_, kBytes);
  if (file_ >= 0) close(file_);
}

std::uint64_t SharedMemory::allocate(std::size_t bytes) {
  const std::size_t rounded = rounded_to_page(bytes);
  const std::uint64_t offset = control().next.fetch_add(rounded);
  if (offset + rounded > kBytes) base::fail(base::ErrorKind::other, "the ranks' shared memory of {} bytes is used up", kBytes);
  return offset;
}

std::uint64_t SharedMemory::find_or_allocate(std::uint64_t key, std::size_t bytes) {
  key |= 1;  // 0 is a free place
  for (std::size_t probe = 0; probe < Control::kKeys; ++probe) {
    Control::Key& place = control().keys[(key / 2 + probe) % Control::kKeys];
    std::uint64_t found = 0;
    if (place.key.compare_exchange_strong(found, key)) {
      place.offset.store(allocate(bytes));
      return place.offset.load();
    }
    if (found != key) continue;
    for (;;) {
      if (const std::uint64_t offset = place.offset.load(); offset != 0) return offset;
      if (const auto gone = loss()) base::fail(base::ErrorKind::peer_lost, "rank {} {}", gone->rank, gone->reason);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  base::fail(base::ErrorKind::other, "more than {} groups of processes", Control::kKeys);
}

void SharedMemory::release_pages(std::uint64_t offset, std::size_t bytes) const {
  madvise(base_ + offset, rounded_to_page(bytes), MADV_REMOVE);  // pages that cannot be given back now are at the end
}

void SharedMemory::report_wait(const std::string& text) const {
  std::uint32_t none = 0;
  if (!control().wait.compare_exchange_strong(none, 1)) return;
  keep(control().waited_in, text);
  control().wait.store(2);
}

std::optional<std::string> SharedMemory::wait() const {
  if (control().wait.load() != 2) return std::nullopt;
  return kept(control().waited_in);
}

void SharedMemory::report_loss(int rank, const std::string& reason, base::ErrorKind kind) const {
  Control& shared = control();
  std::uint32_t none = 0;
  if (!shared.loss.compare_exchange_strong(none, 1)) return;
  shared.lost_rank = rank;
  shared.lost_by = kind;
  keep(shared.reason, reason);
  shared.loss.store(2);
}

std::optional<SharedMemory::Loss> SharedMemory::loss() const {
  const Control& shared = control();
  if (shared.loss.load() != 2) return std::nullopt;
  return Loss{shared.lost_rank, shared.lost_by, kept(shared.reason)};
}

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int silent_rank(const Control& control, std::int64_t since) {
  const std::int64_t now = steady_nanoseconds();
  const auto limit = static_cast<std::int64_t>(control.limits.heartbeat * 1e9);
  for (int rank = 0; rank < control.ranks; ++rank) {
    const Control::Rank& one = control.rank[static_cast<std::size_t>(rank)];
    if (one.state.load() == RankState::running && now - std::max(one.beat.load(), since) > limit) return rank;
  }
  return -1;
}

}  // namespace plimsoll::collectives::local
