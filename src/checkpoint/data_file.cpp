#include "checkpoint/data_file.h"

#include <algorithm>

#include "checkpoint/block_sum.h"

namespace plimsoll::checkpoint {

namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

DataFileWriter::DataFileWriter(io::FileSystem& file_system, const io::Path& path, std::int64_t block_bytes)
    : file_(file_system, path, io::OpenMode::create), block_bytes_(static_cast<std::size_t>(block_bytes)) {
  partial_.reserve(block_bytes_);
}

std::int64_t DataFileWriter::append(std::span<const std::byte> data) {
  constexpr std::byte kZeros[kAlignment]{};
  const auto filled = static_cast<std::size_t>(record_.bytes) % kAlignment;
  if (filled != 0) put(std::span(kZeros).first(kAlignment - filled));
  const std::int64_t offset = record_.bytes;
  put(data);
  return offset;
}

// Full blocks go out from where they are; only the ends of pieces are copied.
void DataFileWriter::put(std::span<const std::byte> data) {
  record_.bytes += std::ssize(data);
  while (!data.empty()) {
    if (partial_.empty() && data.size() >= block_bytes_) {
      write_block(data.first(block_bytes_));
      data = data.subspan(block_bytes_);
      continue;
    }
    const std::size_t taken = std::min(block_bytes_ - partial_.size(), data.size());
    partial_.insert(partial_.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(taken));
    data = data.subspan(taken);
    if (partial_.size() < block_bytes_) continue;
    write_block(partial_);
    partial_.clear();
  }
}

void DataFileWriter::write_block(std::span<const std::byte> block) {
  record_.sums.push_back(block_sum(block));
  file_.write_at(written_, block);
  written_ += std::ssize(block);
}

FileRecord DataFileWriter::finish() {
  if (!partial_.empty()) write_block(partial_);
  file_.sync();
  file_.close();
  return std::move(record_);
}

void visit_blocks(io::FileSystem& file_system, const io::Path& path, const FileRecord& record, std::int64_t block_bytes,
                  const BlockVisit& visit) {
  const io::File file(file_system, path, io::OpenMode::read);
  if (const std::int64_t size = file.size(); size != record.bytes) {
    base::bad_input("'{}' has {} bytes; its manifest says {}", path.string(), size, record.bytes);
  }
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(block_bytes, record.bytes)));
  for (std::size_t block = 0; block < record.sums.size(); ++block) {
    const std::int64_t first = static_cast<std::int64_t>(block) * block_bytes;
    const std::int64_t end = std::min(first + block_bytes, record.bytes);
    if (!visit.wanted(first, end)) continue;
    const std::span<std::byte> bytes = std::span(buffer).first(static_cast<std::size_t>(end - first));
    file.read_exactly(first, bytes);
    if (const std::uint32_t sum = block_sum(bytes); sum != record.sums[block]) {
      base::bad_input("'{}' is damaged in block {} (bytes {} to {}): CRC-32C {:08x} found, {:08x} expected", path.string(), block, first,
                      end, sum, record.sums[block]);
    }
    visit.take(first, bytes);
  }
}

}  // namespace plimsoll::checkpoint
