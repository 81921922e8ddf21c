#include "storage/disk/block_store.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parallel.h"

namespace plimsoll::storage::disk {

namespace {

using base::Bytes;

constexpr std::string_view kPrefix = "plimsoll-scratch-";

std::int64_t round_up(std::int64_t length) { return (length + BlockStore::kPage - 1) / BlockStore::kPage * BlockStore::kPage; }

// Whether a drive takes it as it is, around the page cache.
bool is_paged(std::span<const std::byte> data) {
  return reinterpret_cast<std::uintptr_t>(data.data()) % BlockStore::kPage == 0 && data.size() % BlockStore::kPage == 0;
}

std::uint64_t sum_of(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

// A file whose process is gone; such a file has lost its use.
bool is_left_over(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  std::int64_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc{} && end != name.data() + name.size() && *end == '-' &&
         access(fmt::format("/proc/{}", process).c_str(), F_OK) != 0;
}

// What cannot be removed is tried once more before the run stops; whatever is left goes with the next start's check_folder.
void unname(io::FileSystem& file_system, const io::Path& path) {
  try {
    file_system.remove(path);
  } catch (const io::IoError&) {
    if (file_system.status(path)) file_system.remove(path);
    throw;
  }
}

// Several ranks may clear the same folder at once.
void remove_if_there(io::FileSystem& file_system, const io::Path& path) {
  try {
    file_system.remove(path);
  } catch (const io::IoError& error) {
    if (error.code() != ENOENT) throw;
  }
}

// Made as "plimsoll-scratch-PID-RANK-NUMBER", and unnamed at once: nobody finds it again, and nothing is left when the process
// ends. Another store of the process may be between the two.
io::File open_scratch(io::FileSystem& file_system, const io::Path& folder, std::int32_t rank) {
  for (int number = 0;; ++number) {
    const io::Path path = folder / fmt::format("{}{}-{}-{}", kPrefix, getpid(), rank, number);
    try {
      io::File file(file_system, path, io::OpenMode::scratch);
      unname(file_system, path);
      return file;
    } catch (const io::IoError& error) {
      if (error.code() != EEXIST) throw;
    }
  }
}

}  // namespace

void check_folder(io::FileSystem& file_system, const io::Path& folder, Bytes size) {
  if (folder.empty()) base::bad_input("the disk tier has no folder; set \"limits.disk_path\"");
  const std::optional<io::Status> status = file_system.status(folder);
  if (!status || status->kind != io::EntryKind::directory)
    base::bad_input("the disk tier's folder '{}' {}; set \"limits.disk_path\" to one that exists", folder.string(),
                    status ? "is not a folder" : "does not exist");
  if (file_system.is_memory(folder))
    base::not_legal("the disk tier's folder '{}' is in memory itself (tmpfs); set \"limits.disk_path\" to a folder on a drive",
                    folder.string());
  for (const io::Entry& entry : file_system.list(folder)) {
    if (entry.kind == io::EntryKind::file && is_left_over(entry.name)) remove_if_there(file_system, folder / entry.name);
  }
  const Bytes free = file_system.free_space(folder);
  if (free < size) {
    base::not_legal("the disk tier needs {} and '{}' has {} free; make room, or set \"limits.disk_path\" to another folder",
                    base::to_string(size), folder.string(), base::to_string(free));
  }
}

BlockStore::BlockStore(io::FileSystem& file_system, BlockStoreOptions options)
    : options_(std::move(options)),
      file_(open_scratch(file_system, options_.folder, options_.rank)),
      memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(options_.lanes * kBlock))),
              [](std::byte* memory) { std::free(memory); }) {
  PLIMSOLL_CHECK(memory_ != nullptr, "no memory for the disk tier's {} buffers", options_.lanes);
  for (std::int32_t lane = 0; lane < options_.lanes; ++lane) buffers_.push_back(memory_.get() + lane * kBlock);
  for (const Records& records : options_.records) {
    PLIMSOLL_CHECK(records.offset % kPage == 0 && records.bytes > 0 && records.bytes % kPage == 0 && records.bytes <= kBlock &&
                       records.end() <= round_up(options_.size.count),
                   "the disk tier of {} B has no {} records of {} B at {}", options_.size.count, records.count, records.bytes,
                   records.offset);
    record_marks_.emplace_back(static_cast<std::size_t>(records.count));
  }
}

BlockStore::~BlockStore() = default;

BlockStore::Traffic BlockStore::traffic() const {
  const std::scoped_lock lock(mutex_);
  return traffic_;
}

std::byte* BlockStore::take_buffer() {
  std::unique_lock lock(mutex_);
  buffer_free_.wait(lock, [&] { return !buffers_.empty(); });
  std::byte* buffer = buffers_.back();
  buffers_.pop_back();
  return buffer;
}

void BlockStore::give_buffer(std::byte* buffer) {
  {
    const std::scoped_lock lock(mutex_);
    buffers_.push_back(buffer);
  }
  buffer_free_.notify_one();
}

void BlockStore::check_range(std::int64_t offset, std::size_t length) const {
  PLIMSOLL_CHECK(
      offset >= 0 && offset % kPage == 0 && offset + round_up(static_cast<std::int64_t>(length)) <= round_up(options_.size.count),
      "the disk tier of {} B has no stretch of {} B at {}", options_.size.count, length, offset);
}

// One of the aligned buffers, for as long as it is held.
class BlockStore::Buffer {
 public:
  explicit Buffer(BlockStore& store) : store_(store), memory_(store.take_buffer()) {}
  ~Buffer() { store_.give_buffer(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<std::byte> first(std::size_t bytes) const { return {memory_, bytes}; }

 private:
  BlockStore& store_;
  std::byte* memory_;
};

// work(0) .. work(count - 1), several at a time.
template <typename Work>
void BlockStore::in_lanes(std::size_t count, const Work& work) {
  if (count == 0) return;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  base::in_parallel(std::min<std::int64_t>(options_.lanes, static_cast<std::int64_t>(count)), [&](std::int64_t) {
    try {
      for (std::size_t index = next++; index < count && !failed; index = next++) work(index);
    } catch (...) {
      failed = true;
      throw;
    }
  });
}

// move(stretch, block's place in it, its length), for all blocks of all stretches, several at a time.
template <typename Move>
void BlockStore::by_blocks(std::span<const Stretch> stretches, const Move& move) {
  struct Block {
    std::size_t stretch = 0;
    std::int64_t begin = 0;
    std::int64_t length = 0;
  };
  std::vector<Block> blocks;
  for (std::size_t index = 0; index < stretches.size(); ++index) {
    const Stretch& stretch = stretches[index];
    check_range(stretch.offset, static_cast<std::size_t>(stretch.length));
    for (std::int64_t begin = 0; begin < stretch.length; begin += kBlock)
      blocks.push_back({index, begin, std::min(kBlock, stretch.length - begin)});
  }
  in_lanes(blocks.size(), [&](std::size_t block) { move(blocks[block].stretch, blocks[block].begin, blocks[block].length); });
}

// Records that lie side by side and are named one after the other move together, a block of them at most.
std::vector<BlockStore::RecordRun> BlockStore::runs_of(const Records& records, std::span<const std::int64_t> which) {
  const auto most = static_cast<std::size_t>(kBlock / records.bytes);
  std::vector<RecordRun> runs;
  for (std::size_t index = 0; index < which.size(); ++index) {
    PLIMSOLL_CHECK(which[index] >= 0 && which[index] < records.count, "the disk tier has {} records at {}, and no record {}", records.count,
                   records.offset, which[index]);
    if (index > 0 && which[index] == which[index - 1] + 1 && runs.back().count < most) {
      ++runs.back().count;
    } else {
      runs.push_back({.place = index, .first = which[index], .count = 1});
    }
  }
  return runs;
}

void BlockStore::read_records(const Records& records, std::span<const std::int64_t> which,
                              const std::function<void(std::size_t, std::span<const std::byte>)>& take) {
  const std::vector<RecordRun> runs = runs_of(records, which);
  in_lanes(runs.size(), [&](std::size_t index) {
    const Buffer buffer(*this);
    for_each_record(records, runs[index], read_run(records, runs[index], buffer), take);
  });
}

void BlockStore::write_records(const Records& records, std::span<const std::int64_t> which,
                               const std::function<void(std::size_t, std::span<std::byte>)>& fill) {
  const std::vector<RecordRun> runs = runs_of(records, which);
  in_lanes(runs.size(), [&](std::size_t index) {
    const Buffer buffer(*this);
    const std::span<std::byte> memory = buffer.first(runs[index].count * static_cast<std::size_t>(records.bytes));
    for_each_record(records, runs[index], memory, fill);
    write_run(records, runs[index], memory);
  });
}

void BlockStore::change_records(const Records& records, std::span<const std::int64_t> which,
                                const std::function<void(std::size_t, std::span<std::byte>)>& change) {
  const std::scoped_lock lock(part_mutex_);
  const std::vector<RecordRun> runs = runs_of(records, which);
  in_lanes(runs.size(), [&](std::size_t index) {
    const Buffer buffer(*this);
    const std::span<std::byte> memory = read_run(records, runs[index], buffer);
    for_each_record(records, runs[index], memory, change);
    write_run(records, runs[index], memory);
  });
}

// use(place in the list, the record's memory)
template <typename Use>
void BlockStore::for_each_record(const Records& records, const RecordRun& run, std::span<std::byte> memory, const Use& use) {
  const auto bytes = static_cast<std::size_t>(records.bytes);
  for (std::size_t n = 0; n < run.count; ++n) use(run.place + n, memory.subspan(n * bytes, bytes));
}

std::span<BlockStore::Mark> BlockStore::marks_of(const Records& records, const RecordRun& run) {
  for (std::size_t index = 0; index < options_.records.size(); ++index) {
    if (options_.records[index].offset != records.offset) continue;
    return std::span(record_marks_[index]).subspan(static_cast<std::size_t>(run.first), run.count);
  }
  PLIMSOLL_CHECK(false, "the disk tier has no records at {}", records.offset);
  return {};
}

// What was never written is zeros, wherever the file ends.
std::span<std::byte> BlockStore::read_run(const Records& records, const RecordRun& run, const Buffer& buffer) {
  const std::span<std::byte> memory = buffer.first(run.count * static_cast<std::size_t>(records.bytes));
  std::vector<Mark> marks;
  {
    const std::scoped_lock lock(mutex_);
    const std::span<Mark> present = marks_of(records, run);
    marks.assign(present.begin(), present.end());
  }
  const bool any = std::any_of(marks.begin(), marks.end(), [](const Mark& mark) { return mark.generation > 0; });
  const std::size_t got = any ? file_.read_at(records.at(run.first), memory) : 0;
  for_each_record(records, run, memory, [&](std::size_t place, std::span<std::byte> record) {
    const std::size_t n = place - run.place;
    const Mark& mark = marks[n];
    const std::int64_t offset = records.at(run.first + static_cast<std::int64_t>(n));
    if (mark.generation == 0) {
      std::memset(record.data(), 0, record.size());
      return;
    }
    const std::size_t begin = n * record.size();
    if (got < begin + record.size()) report_short(offset, got > begin ? got - begin : 0, record.size());
    if (const std::uint64_t sum = sum_of(record); sum != mark.sum) report(offset, mark, sum);
  });
  const std::scoped_lock lock(mutex_);
  traffic_.read += static_cast<std::int64_t>(got);
  return memory;
}

void BlockStore::write_run(const Records& records, const RecordRun& run, std::span<const std::byte> memory) {
  const auto bytes = static_cast<std::size_t>(records.bytes);
  std::vector<std::uint64_t> sums;
  for (std::size_t n = 0; n < run.count; ++n) sums.push_back(sum_of(memory.subspan(n * bytes, bytes)));
  file_.write_at(records.at(run.first), memory);
  const std::scoped_lock lock(mutex_);
  const std::span<Mark> marks = marks_of(records, run);
  for (std::size_t n = 0; n < run.count; ++n) {
    marks[n] = {
        .sum = sums[n], .sum_before = marks[n].sum, .length = static_cast<std::uint32_t>(bytes), .generation = marks[n].generation + 1};
  }
  traffic_.written += std::ssize(memory);
}

void BlockStore::write(std::int64_t offset, std::span<const std::byte> data) {
  const Writing one{offset, data};
  write(std::span(&one, 1));
}

void BlockStore::read(std::int64_t offset, std::span<std::byte> out) {
  const Reading one{offset, out};
  read(std::span(&one, 1));
}

void BlockStore::write(std::span<const Writing> stretches) {
  std::vector<Stretch> where;
  for (const Writing& each : stretches) where.push_back({each.offset, std::ssize(each.data)});
  by_blocks(where, [&](std::size_t index, std::int64_t begin, std::int64_t length) {
    const auto& [offset, data] = stretches[index];
    write_block(offset + begin, data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length)));
  });
}

void BlockStore::read(std::span<const Reading> stretches) {
  std::vector<Stretch> where;
  for (const Reading& each : stretches) where.push_back({each.offset, std::ssize(each.out)});
  by_blocks(where, [&](std::size_t index, std::int64_t begin, std::int64_t length) {
    const auto& [offset, out] = stretches[index];
    read_block(offset + begin, out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length)));
  });
}

void BlockStore::read_part(const Stretch& stretch, std::int64_t first, std::span<std::byte> out) {
  std::vector<std::byte> block;
  for (const std::int64_t end = first + std::ssize(out); first < end;) {
    const std::int64_t begin = first / kBlock * kBlock;
    const std::int64_t length = std::min(kBlock, stretch.length - begin);
    const std::int64_t taken = std::min(begin + length, end) - first;
    const auto part = out.last(static_cast<std::size_t>(end - first)).first(static_cast<std::size_t>(taken));
    if (taken == length) {
      read(stretch.offset + begin, part);
    } else {
      block.resize(static_cast<std::size_t>(length));
      read(stretch.offset + begin, block);
      std::memcpy(part.data(), block.data() + (first - begin), part.size());
    }
    first += taken;
  }
}

void BlockStore::write_part(const Stretch& stretch, std::int64_t first, std::span<const std::byte> data) {
  std::vector<std::byte> block;
  for (const std::int64_t end = first + std::ssize(data); first < end;) {
    const std::int64_t begin = first / kBlock * kBlock;
    const std::int64_t length = std::min(kBlock, stretch.length - begin);
    const std::int64_t taken = std::min(begin + length, end) - first;
    const auto part = data.last(static_cast<std::size_t>(end - first)).first(static_cast<std::size_t>(taken));
    if (taken == length) {
      write(stretch.offset + begin, part);
    } else {
      const std::scoped_lock lock(part_mutex_);
      block.resize(static_cast<std::size_t>(length));
      read(stretch.offset + begin, block);
      std::memcpy(block.data() + (first - begin), part.data(), part.size());
      write(stretch.offset + begin, block);
    }
    first += taken;
  }
}

// Marks of blocks that lay in these bytes with other borders. To be called under the lock.
void BlockStore::forget_overlapped(std::int64_t offset, std::int64_t length) {
  auto mark = marks_.lower_bound(offset);
  if (mark != marks_.begin() && std::prev(mark)->first + round_up(std::prev(mark)->second.length) > offset) marks_.erase(std::prev(mark));
  if (mark != marks_.end() && mark->first == offset) ++mark;
  while (mark != marks_.end() && mark->first < offset + length) mark = marks_.erase(mark);
}

void BlockStore::write_block(std::int64_t offset, std::span<const std::byte> data) {
  const auto whole = static_cast<std::size_t>(round_up(static_cast<std::int64_t>(data.size())));
  std::optional<Buffer> copy;
  std::span<const std::byte> written = data;
  if (!is_paged(data)) {
    const std::span<std::byte> padded = copy.emplace(*this).first(whole);
    std::memcpy(padded.data(), data.data(), data.size());
    std::memset(padded.data() + data.size(), 0, whole - data.size());
    written = padded;
  }
  const std::uint64_t sum = sum_of(written);
  file_.write_at(offset, written);
  const std::scoped_lock lock(mutex_);
  forget_overlapped(offset, static_cast<std::int64_t>(whole));
  Mark& mark = marks_[offset];
  mark = {.sum = sum, .sum_before = mark.sum, .length = static_cast<std::uint32_t>(data.size()), .generation = mark.generation + 1};
  traffic_.written += static_cast<std::int64_t>(whole);
}

void BlockStore::read_block(std::int64_t offset, std::span<std::byte> out) {
  Mark mark;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = marks_.find(offset); found != marks_.end()) mark = found->second;
  }
  if (mark.generation == 0) {
    std::memset(out.data(), 0, out.size());
    return;
  }
  PLIMSOLL_CHECK(mark.length == out.size(), "the disk tier has {} B at {}, not {} B", mark.length, offset, out.size());
  const auto whole = static_cast<std::size_t>(round_up(mark.length));
  std::optional<Buffer> copy;
  const std::span<std::byte> read = is_paged(out) ? out : copy.emplace(*this).first(whole);
  const std::size_t got = file_.read_at(offset, read);
  if (got != whole) report_short(offset, got, whole);
  const std::uint64_t sum = sum_of(read);
  if (sum != mark.sum) report(offset, mark, sum);
  if (copy) std::memcpy(out.data(), read.data(), out.size());
  const std::scoped_lock lock(mutex_);
  traffic_.read += static_cast<std::int64_t>(whole);
}

void BlockStore::report_short(std::int64_t offset, std::size_t got, std::size_t wanted) const {
  base::bad_input("the disk tier '{}' gave {} of {} bytes at {}: a write was lost; use another drive for \"limits.disk_path\"",
                  file_.path().string(), got, wanted, offset);
}

void BlockStore::report(std::int64_t offset, const Mark& mark, std::uint64_t found) const {
  const bool stale = mark.generation > 1 && found == mark.sum_before;
  base::bad_input(
      "the disk tier '{}', bytes {} to {}: found {}, expected what was written {} (checksum {:016x}, found {:016x}); use another drive for "
      "\"limits.disk_path\"",
      file_.path().string(), offset, offset + mark.length, stale ? "the content before the last write" : "damaged content",
      mark.generation == 1 ? "once" : fmt::format("{} times", mark.generation), mark.sum, found);
}

}  // namespace plimsoll::storage::disk
