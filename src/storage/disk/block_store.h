// The disk tier of a rank: one scratch file that serves as memory. What is read is what was written, or the run stops with a
// sentence that says where: every block has a checksum of its last content, kept in memory, and one of the content before, so that
// a write that the drive lost is told from a damaged one.
//
// Files are opened around the page cache where the file system can do that, so a tier larger than memory does not push out what
// is in use, several transfers at a time to keep the drive busy. Memory that starts at pages goes to the drive and comes from it as it is;
// other memory through a fixed number of aligned buffers. The file has no
// name after it is opened: it is gone when the process is, however that ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "io/file_system.h"

namespace plimsoll::storage::disk {

// A stretch of records that are read and written one by one, such as the rows of a table: each is a block with a checksum of its own.
struct Records {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of each: whole pages, at most a block

  std::int64_t at(std::int64_t record) const { return offset + record * bytes; }
  std::int64_t end() const { return at(count); }
};

struct BlockStoreOptions {
  io::Path folder;
  base::Bytes size;                // of the tier
  std::int32_t rank = 0;           // for the file's name
  std::int32_t lanes = 4;          // transfers of a call in flight; buffers for those that need one
  std::vector<Records> records{};  // stretches that only the calls for records touch
};

// A folder that can hold the tier: it is there, can be written, is not memory itself and has the room; bad_input or not_legal
// otherwise. Files that earlier processes left when they died between making and unnaming them are removed.
void check_folder(io::FileSystem& file_system, const io::Path& folder, base::Bytes size);

class BlockStore {
 public:
  // The file system must outlive it.
  BlockStore(io::FileSystem& file_system, BlockStoreOptions options);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Offsets are multiples of kPage. A stretch is read as it was written: from the same offset, with the same length, or in pieces
  // of whole blocks. What was never written is zeros; a stretch written across others ends them. Several threads may read and write
  // different stretches at once. Throws IoError, or bad_input where the content is not what was written.
  void write(std::int64_t offset, std::span<const std::byte> data);
  void read(std::int64_t offset, std::span<std::byte> out);

  // Several stretches in one go: small ones keep the drive as busy as large ones.
  struct Writing {
    std::int64_t offset = 0;
    std::span<const std::byte> data;
  };
  struct Reading {
    std::int64_t offset = 0;
    std::span<std::byte> out;
  };
  void write(std::span<const Writing> stretches);
  void read(std::span<const Reading> stretches);

  // Any bytes of a stretch, from its byte `first` on: for what is done between steps. Blocks that are written in part are read first.
  struct Stretch {
    std::int64_t offset = 0;
    std::int64_t length = 0;
  };
  void read_part(const Stretch& stretch, std::int64_t first, std::span<std::byte> out);
  void write_part(const Stretch& stretch, std::int64_t first, std::span<const std::byte> data);

  // Records by their numbers, several at a time: `take` sees what a record holds, `fill` writes all of it, `change` alters what is there.
  // They get the place in the list and the record's memory, and run on several threads at once.
  void read_records(const Records& records, std::span<const std::int64_t> which,
                    const std::function<void(std::size_t, std::span<const std::byte>)>& take);
  void write_records(const Records& records, std::span<const std::int64_t> which,
                     const std::function<void(std::size_t, std::span<std::byte>)>& fill);
  void change_records(const Records& records, std::span<const std::int64_t> which,
                      const std::function<void(std::size_t, std::span<std::byte>)>& change);
  // What a record takes in memory.
  static constexpr std::int64_t kMarkBytes = 24;

  struct Traffic {
    std::int64_t read = 0;     // bytes
    std::int64_t written = 0;  // bytes
  };
  Traffic traffic() const;

  static constexpr std::int64_t kPage = 4096;                    // what drives and file systems want transfers to be multiples of
  static constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // has one checksum, is one transfer

 private:
  struct Mark {
    std::uint64_t sum = 0;
    std::uint64_t sum_before = 0;
    std::uint32_t length = 0;
    std::uint32_t generation = 0;  // writes so far
  };
  static_assert(sizeof(Mark) == kMarkBytes);

  template <typename Work>
  void in_lanes(std::size_t count, const Work& work);
  template <typename Move>
  void by_blocks(std::span<const Stretch> stretches, const Move& move);
  class Buffer;
  // Records [first, first + count), the list's from `place` on.
  struct RecordRun {
    std::size_t place = 0;
    std::int64_t first = 0;
    std::size_t count = 0;
  };
  static std::vector<RecordRun> runs_of(const Records& records, std::span<const std::int64_t> which);
  template <typename Use>
  static void for_each_record(const Records& records, const RecordRun& run, std::span<std::byte> memory, const Use& use);
  std::span<Mark> marks_of(const Records& records, const RecordRun& run);
  std::span<std::byte> read_run(const Records& records, const RecordRun& run, const Buffer& buffer);
  void write_run(const Records& records, const RecordRun& run, std::span<const std::byte> memory);
  void write_block(std::int64_t offset, std::span<const std::byte> data);
  void read_block(std::int64_t offset, std::span<std::byte> out);
  [[noreturn]] void report_short(std::int64_t offset, std::size_t got, std::size_t wanted) const;
  [[noreturn]] void report(std::int64_t offset, const Mark& mark, std::uint64_t found) const;
  void check_range(std::int64_t offset, std::size_t length) const;
  void forget_overlapped(std::int64_t offset, std::int64_t length);
  std::byte* take_buffer();
  void give_buffer(std::byte* buffer);

  BlockStoreOptions options_;
  io::File file_;
  mutable std::mutex mutex_;
  std::mutex part_mutex_;  // between reading a block or a record and writing it with some bytes changed
  std::condition_variable buffer_free_;
  std::vector<std::byte*> buffers_;  // free ones
  std::unique_ptr<std::byte[], void (*)(std::byte*)> memory_;
  std::map<std::int64_t, Mark> marks_;           // by offset
  std::vector<std::vector<Mark>> record_marks_;  // of each stretch of records, by number
  Traffic traffic_;
};

}  // namespace plimsoll::storage::disk
