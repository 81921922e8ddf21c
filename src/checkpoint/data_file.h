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
  // Writes what is left, syncs and closes. A file whose sync fails must be abandoned, not synced again.
  FileRecord finish();

 private:
  void put(std::span<const std::byte> data);
  void write_block(std::span<const std::byte> block);

  io::File file_;
  std::size_t block_bytes_;
  std::vector<std::byte> partial_;  // the block that is not yet full
  FileRecord record_;               // `bytes` counts what was appended
  std::int64_t written_ = 0;
};

// Which blocks to read, and what to do with each once its sum was found right.
struct BlockVisit {
  std::function<bool(std::int64_t first, std::int64_t end)> wanted;  // bytes of the file
  std::function<void(std::int64_t first, std::span<const std::byte> block)> take;
};

// Reads a data file block by block. Throws, naming file, block, expected and found sum, before a wrong block is taken.
void visit_blocks(io::FileSystem& file_system, const io::Path& path, const FileRecord& record, std::int64_t block_bytes,
                  const BlockVisit& visit);

}  // namespace plimsoll::checkpoint
