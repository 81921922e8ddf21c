// The memory that supervised processes share: an anonymous file made by the supervisor and inherited by its children. It has no
// name, so nothing can be left behind. It is large and sparse: pages exist once they are touched.
//
// In front lies the control block: who lives, who is lost and why. Behind it memory is handed out once and for all, by key: the
// first process that asks for a key gets fresh zeroed memory, the others the same.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collectives/local/wait.h"
#include "collectives/transport.h"

namespace plimsoll::collectives::local {

inline constexpr int kMostProcesses = 256;

enum class RankState : std::uint32_t { starting, running, ended };

struct Control {
  static constexpr std::uint64_t kMagic = 0x31304C4D49535350u;
  static constexpr std::size_t kKeys = 8192;

  struct Rank {
    std::atomic<std::int64_t> beat;  // steady nanoseconds of the last sign of life
    std::atomic<RankState> state;
    std::atomic<std::int32_t> process;
  };
  struct Key {
    std::atomic<std::uint64_t> key;     // 0: free
    std::atomic<std::uint64_t> offset;  // 0: not yet
  };

  std::uint64_t magic;
  std::int32_t ranks;
  Limits limits;
  std::atomic<std::uint32_t> loss;  // 0: none, 1: being written, 2: written
  std::int32_t lost_rank;
  base::ErrorKind lost_by;
  std::array<char, 1024> reason;
  std::atomic<std::uint32_t> wait;  // as loss
  std::array<char, 512> waited_in;
  std::atomic<std::uint64_t> next;  // first byte that was not handed out
  std::array<Rank, kMostProcesses> rank;
  std::array<Key, kKeys> keys;
};

class SharedMemory {
 public:
  // Makes the file and the control block.
  static SharedMemory create(int ranks, const Limits& limits);
  // Maps a file that was inherited; refuses one that is not ours.
  static SharedMemory adopt(int file);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  int file() const { return file_; }
  Control& control() const { return *reinterpret_cast<Control*>(base_); }
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }

  std::uint64_t allocate(std::size_t bytes);  // an offset; zeroed
  // The same memory for all who give the same key.
  std::uint64_t find_or_allocate(std::uint64_t key, std::size_t bytes);
  void release_pages(std::uint64_t offset, std::size_t bytes) const;

  // The first loss stays; others are not recorded.
  void report_loss(int rank, const std::string& reason, base::ErrorKind kind = base::ErrorKind::peer_lost) const;
  struct Loss {
    int rank = 0;
    base::ErrorKind kind = base::ErrorKind::peer_lost;
    std::string reason;
  };
  std::optional<Loss> loss() const;
  // What a rank waited in for a lost one: again the first stays.
  void report_wait(const std::string& text) const;
  std::optional<std::string> wait() const;

 private:
  SharedMemory(int file, std::byte* base) : file_(file), base_(base) {}

  int file_ = -1;
  std::byte* base_ = nullptr;
};

std::int64_t steady_nanoseconds();

// A rank among the first `ranks` that runs but gave no sign of life since `since` or for longer than the limit; -1 when there is
// none. `since`: whoever asks may have stood still itself.
int silent_rank(const Control& control, std::int64_t since);

}  // namespace plimsoll::collectives::local
