#include "checkpoint/data_file.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "checkpoint/block_sum.h"

namespace plimsoll::checkpoint {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPiece = std::size_t{128} << 10;

// From here on sums are worth a thread when they are written, and a mapping when they are read. Smaller pieces go out block by block, as
// one operation each.
constexpr std::size_t kManyBytes = std::size_t{8} << 20;

// Of a mapping, by one thread, until it is let go of: more counts as the process's memory without being faster.
constexpr std::size_t kTouchedBytes = std::size_t{2} << 20;

// The moves that may touch bytes [first, end): a window over the sorted list. Ranges of a manifest that somebody made up
// may overlap, so the window starts at the first move that reaches beyond `first`, not at the last that starts before it.
class MoveWindow {
 public:
  explicit MoveWindow(std::span<const Move> moves) : moves_(moves) {}

  std::span<const Move> over(std::int64_t first, std::int64_t end) {
    while (begin_ < moves_.size() && moves_[begin_].end <= first) ++begin_;
    while (end_ < moves_.size() && moves_[end_].first < end) ++end_;
    return begin_ < end_ ? moves_.subspan(begin_, end_ - begin_) : std::span<const Move>();
  }

 private:
  std::span<const Move> moves_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

void copy_block(std::span<const Move> moves, std::int64_t first, std::span<const std::byte> block) {
  const std::int64_t end = first + std::ssize(block);
  for (const Move& move : moves) {
    const std::int64_t from = std::max(first, move.first);
    const std::int64_t to = std::min(end, move.end);
    if (from >= to) continue;
    const auto bytes = block.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from));
    move.give ? move.give(from - move.first, bytes)
              : static_cast<void>(std::memcpy(move.to + (from - move.first), bytes.data(), bytes.size()));
  }
}

// Whoever takes bytes himself must not see wrong ones, and moves that overlap would sum some bytes twice.
bool may_be_moved_unchecked(std::span<const Move> moves) {
  for (std::size_t index = 0; index < moves.size(); ++index) {
    if (moves[index].give || (index > 0 && moves[index].first < moves[index - 1].end)) return false;
  }
  return true;
}

// The sum of a block whose bytes are copied to where they go as they are summed.
std::uint32_t move_and_sum(std::span<const Move> moves, std::int64_t first, std::span<const std::byte> block) {
  std::uint32_t sum = 0;
  std::int64_t at = 0;
  const auto upto = [&](std::int64_t end) { return block.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)); };
  for (const Move& move : moves) {
    const std::int64_t from = std::max(first, move.first) - first;
    const std::int64_t end = std::min(first + std::ssize(block), move.end) - first;
    if (from >= end) continue;
    sum = block_sum(upto(from), sum);
    at = from;
    sum = copy_and_sum(upto(end), move.to + (first + from - move.first), sum);
    at = end;
  }
  return block_sum(upto(std::ssize(block)), sum);
}

// One thread's share of a data file.
class BlockReader {
 public:
  BlockReader(const io::File& file, const io::Mapping& mapping, const FileRecord& record, std::int64_t block_bytes,
              std::span<const Move> moves, Blocks blocks)
      : file_(file), mapping_(mapping), record_(record), block_bytes_(block_bytes), window_(moves), blocks_(blocks) {}

  void read(std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) read_block(block);
    mapping_.let_go(touched_);
  }

 private:
  void read_block(std::int64_t block) {
    const std::int64_t first = block * block_bytes_;
    const std::int64_t end = std::min(first + block_bytes_, record_.bytes);
    const std::span<const Move> moves = window_.over(first, end);
    if (moves.empty() && blocks_ == Blocks::moved) return;
    const auto check = [&](std::uint32_t sum) {
      const std::uint32_t expected = record_.sums[static_cast<std::size_t>(block)];
      if (sum == expected) return;
      base::bad_input("'{}' is damaged in block {} (bytes {} to {}): CRC-32C {:08x} found, {:08x} expected", file_.path().string(), block,
                      first, end, sum, expected);
    };
    const auto size = static_cast<std::size_t>(end - first);
    if (const std::span<const std::byte> cached = in_page_cache(first, size); !cached.empty()) {
      const bool unchecked = may_be_moved_unchecked(moves);
      check(unchecked ? move_and_sum(moves, first, cached) : block_sum(cached));
      if (!unchecked) copy_block(moves, first, cached);
      return touched(cached);
    }
    const bool straight = moves.size() == 1 && !moves[0].give && moves[0].first <= first && moves[0].end >= end;
    if (!straight) buffer_.resize(size);
    const std::span<std::byte> bytes(straight ? moves[0].to + (first - moves[0].first) : buffer_.data(), size);
    check(read_and_sum(first, bytes));
    if (!straight) copy_block(moves, first, bytes);
  }

  // Lets go of many blocks at once: each time, all processors are told.
  void touched(std::span<const std::byte> block) {
    const bool follows = !touched_.empty() && touched_.data() + touched_.size() == block.data();
    if (follows && touched_.size() < kTouchedBytes) {
      touched_ = {touched_.data(), touched_.size() + block.size()};
    } else {
      mapping_.let_go(touched_);
      touched_ = block;
    }
  }

  // Empty where the drive would have to be asked.
  std::span<const std::byte> in_page_cache(std::int64_t first, std::size_t size) const {
    if (mapping_.bytes().empty()) return {};
    mapping_.check_size();
    const std::span<const std::byte> bytes = mapping_.bytes().subspan(static_cast<std::size_t>(first), size);
    return mapping_.in_memory(bytes) ? bytes : std::span<const std::byte>();
  }

  // In pieces that are still in the processor's cache when they are summed.
  std::uint32_t read_and_sum(std::int64_t first, std::span<std::byte> bytes) const {
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      const std::span<std::byte> piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
      file_.read_exactly(first + static_cast<std::int64_t>(at), piece);
      sum = block_sum(piece, sum);
    }
    return sum;
  }

  const io::File& file_;
  const io::Mapping& mapping_;  // empty: there is none
  const FileRecord& record_;
  std::int64_t block_bytes_;
  MoveWindow window_;
  Blocks blocks_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> touched_;  // of the mapping, not yet let go of
};

// Empty for small files, and where a file cannot be mapped, as on some network drives: they are read.
io::Mapping mapping_of(io::FileSystem& file_system, const io::Path& path, std::int64_t bytes) {
  if (bytes < std::int64_t{kManyBytes}) return {};
  try {
    io::Mapping mapping = file_system.map(path);
    return std::ssize(mapping.bytes()) == bytes ? mapping : io::Mapping();
  } catch (const io::IoError&) {
    return {};
  }
}

}  // namespace

DataFileWriter::DataFileWriter(io::FileSystem& file_system, const io::Path& path, std::int64_t block_bytes)
    : file_(file_system, path, io::OpenMode::create), block_bytes_(static_cast<std::size_t>(block_bytes)) {
  partial_.reserve(block_bytes_);
}

std::int64_t DataFileWriter::begin_piece() {
  constexpr std::byte kZeros[kAlignment]{};
  const auto filled = static_cast<std::size_t>(record_.bytes) % kAlignment;
  if (filled != 0) put(std::span(kZeros).first(kAlignment - filled));
  return record_.bytes;
}

std::int64_t DataFileWriter::append(std::span<const std::byte> data) {
  const std::int64_t offset = begin_piece();
  put(data);
  return offset;
}

std::int64_t DataFileWriter::append(std::int64_t bytes, const std::function<void(std::int64_t first, std::span<std::byte> out)>& read) {
  const std::int64_t offset = begin_piece();
  std::vector<std::byte> block(std::min(block_bytes_, static_cast<std::size_t>(bytes)));
  for (std::int64_t first = 0; first < bytes;) {
    const std::span<std::byte> next = std::span(block).first(std::min(block.size(), static_cast<std::size_t>(bytes - first)));
    read(first, next);
    put(next);
    first += std::ssize(next);
  }
  return offset;
}

// Full blocks go out from where they are; only the ends of pieces are copied.
void DataFileWriter::put(std::span<const std::byte> data) {
  record_.bytes += std::ssize(data);
  while (!data.empty()) {
    if (partial_.empty() && data.size() >= block_bytes_) {
      const std::size_t whole = data.size() / block_bytes_ * block_bytes_;
      const std::size_t taken = whole < kManyBytes ? block_bytes_ : whole;
      write_blocks(data.first(taken));
      data = data.subspan(taken);
      continue;
    }
    const std::size_t taken = std::min(block_bytes_ - partial_.size(), data.size());
    partial_.insert(partial_.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(taken));
    data = data.subspan(taken);
    if (partial_.size() < block_bytes_) continue;
    write_blocks(partial_);
    partial_.clear();
  }
}

// Of many blocks the sums are made by another thread while this one writes.
void DataFileWriter::write_blocks(std::span<const std::byte> blocks) {
  const auto write = [&] { file_.write_at(written_, blocks); };
  const auto sum = [&] {
    for (std::size_t at = 0; at < blocks.size(); at += block_bytes_)
      record_.sums.push_back(block_sum(blocks.subspan(at, std::min(block_bytes_, blocks.size() - at))));
  };
  if (blocks.size() < kManyBytes) {
    sum();
    write();
  } else {
    base::in_parallel(2, [&](std::int64_t thread) { thread == 0 ? write() : sum(); });
  }
  written_ += std::ssize(blocks);
}

FileRecord DataFileWriter::finish() {
  if (!partial_.empty()) write_blocks(partial_);
  file_.sync();
  file_.close();
  return std::move(record_);
}

void read_blocks(io::FileSystem& file_system, const io::Path& path, const FileRecord& record, std::int64_t block_bytes,
                 std::span<const Move> moves, Blocks blocks) {
  const io::File file(file_system, path, io::OpenMode::read);
  if (const std::int64_t size = file.size(); size != record.bytes) {
    base::bad_input("'{}' has {} bytes; its manifest says {}", path.string(), size, record.bytes);
  }
  const io::Mapping mapping = mapping_of(file_system, path, record.bytes);
  const auto count = std::ssize(record.sums);
  const std::int64_t threads = base::threads_for_bytes(record.bytes);
  base::in_parallel(threads, [&](std::int64_t thread) {
    BlockReader(file, mapping, record, block_bytes, moves, blocks).read(count * thread / threads, count * (thread + 1) / threads);
  });
}

}  // namespace plimsoll::checkpoint
