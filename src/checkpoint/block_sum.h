// CRC-32C of a block of data, at the speed of memory.
//
// Every block of a checkpoint is summed when it is written and again when it is read, so this must cost next to nothing.
// The processor's instruction takes eight bytes but has a latency of three cycles; three independent lanes hide it, and
// are joined by moving a lane's sum over the bytes that follow it, which is a linear map kept as a table. Processors with
// wide carry-less products fold 256 bytes at a time instead. Elsewhere the plain table of base/crc32c.h gives the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plimsoll::checkpoint {

// `before` is the sum of what came before `data`: a block may be summed piece by piece.
std::uint32_t block_sum(std::span<const std::byte> data, std::uint32_t before = 0);

// block_sum(from, before), copied to `to` on the way: where memory bounds a copy, its sum costs nothing.
std::uint32_t copy_and_sum(std::span<const std::byte> from, std::byte* to, std::uint32_t before = 0);

}  // namespace plimsoll::checkpoint
