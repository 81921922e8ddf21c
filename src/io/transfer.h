// The loops around read(2) and write(2): interrupted calls are repeated, partial ones continued.
//
// They take the call as an argument, so that tests can hand in one that is interrupted or moves a byte at a time.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace plimsoll::io {

struct TransferResult {
  std::size_t moved = 0;
  int error = 0;  // errno, 0 when all went well
};

// `call(done, rest)` moves some of `rest`, returning like read(2) and setting errno; 0 means end of file.
template <typename Byte, typename Call>
TransferResult transfer_fully(std::span<Byte> all, Call&& call) {
  std::size_t moved = 0;
  while (moved < all.size()) {
    const std::int64_t count = call(moved, all.subspan(moved));
    if (count < 0) {
      if (errno == EINTR) continue;
      return {moved, errno};
    }
    if (count == 0) break;
    moved += static_cast<std::size_t>(count);
  }
  return {moved, 0};
}

}  // namespace plimsoll::io
