// The bytes of a checkpoint: pieces of tensors one behind the other, summed block by block as they go out and come in.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/manifest.h"
#include "io/file_system.h"

namespace plimsoll::checkpoint {

class DataFileWriter {
 public:
  DataFileWriter(io::FileSystem& file_system, const io::Path& path, std::int64_t block_bytes);

  // Returns the offset at which `data` lies; every piece starts at a multiple of 64 bytes.
  std::int64_t append(std::span<const std::byte> data);
  std::int64_t append(std::int64_t bytes, const std::function<void(std::int64_t first, std::span<std::byte> out)>& read);
  // Writes what is left, syncs and closes. A file whose sync fails must be abandoned, not synced again.
  FileRecord finish();

 private:
  std::int64_t begin_piece();
  void put(std::span<const std::byte> data);
  void write_blocks(std::span<const std::byte> blocks);

  io::File file_;
  std::size_t block_bytes_;
  std::vector<std::byte> partial_;  // the block that is not yet full
  FileRecord record_;               // `bytes` counts what was appended
  std::int64_t written_ = 0;
};

// Bytes [first, end) of a data file on their way to memory.
struct Move {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::byte* to = nullptr;
  // Instead of `to`: takes the bytes that lie `from` bytes into the move; several threads may call it.
  std::function<void(std::int64_t from, std::span<const std::byte> data)> give = {};
};

enum class Blocks { moved, all };  // only those that a move touches, or every one

// Reads a data file block by block, sums each and makes the moves, which are sorted by where they begin. Large files are read
// by several threads, and a block that lies within one move is read to where it goes. Throws, naming file, block, expected
// and found sum, when a block is wrong; what was moved until then stays.
void read_blocks(io::FileSystem& file_system, const io::Path& path, const FileRecord& record, std::int64_t block_bytes,
                 std::span<const Move> moves, Blocks blocks);

}  // namespace plimsoll::checkpoint
