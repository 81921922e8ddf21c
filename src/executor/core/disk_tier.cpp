#include "executor/core/disk_tier.h"

#include "base/error.h"

namespace plimsoll::executor {

using storage::disk::BlockStore;

DiskTier::DiskTier(const plan::RankClass& rank_class, const ExecutorOptions& options) : class_(rank_class) {
  const base::Bytes size = rank_class.arena[static_cast<std::size_t>(plan::Tier::disk)];
  if (size.count == 0) return;
  PLIMSOLL_CHECK(options.file_system != nullptr, "a plan with a disk tier and no files");
  storage::disk::check_folder(*options.file_system, options.disk_folder, size);
  store_ = std::make_unique<BlockStore>(
      *options.file_system, storage::disk::BlockStoreOptions{.folder = options.disk_folder, .size = size, .rank = options.rank});
}

bool DiskTier::touches(const plan::Instruction& instruction) {
  const auto* copy = std::get_if<plan::Copy>(&instruction);
  return copy != nullptr && (copy->op.from == plan::Tier::disk || copy->op.to == plan::Tier::disk);
}

void DiskTier::copy(const plan::Procedure& procedure, const plan::Call& call, std::int64_t shard_place, const AddressOf& in_memory) {
  const auto on_disk = [&](const plan::Operand& operand) {
    return class_.buffers[call.bindings[operand.index]].offset.count + shard_place * operand.shard.count + operand.offset.count;
  };
  const auto memory_of = [&](const plan::Operand& operand) {
    return std::span(in_memory(operand), static_cast<std::size_t>(operand.type.bytes()));
  };
  std::vector<BlockStore::Reading> read;
  std::vector<BlockStore::Writing> written;
  for (const plan::Instruction& instruction : procedure.instructions) {
    const auto& moved = std::get<plan::Copy>(instruction);
    if (moved.op.from == plan::Tier::disk) {
      read.push_back({on_disk(moved.from), memory_of(moved.to)});
    } else {
      written.push_back({on_disk(moved.to), memory_of(moved.from)});
    }
  }
  if (!read.empty()) store_->read(read);
  if (!written.empty()) store_->write(written);
}

void DiskTier::read(const plan::Buffer& buffer, std::int64_t first, std::span<std::byte> out) {
  store_->read_part({buffer.offset.count, buffer.type.bytes()}, first, out);
}

void DiskTier::write(const plan::Buffer& buffer, std::int64_t first, std::span<const std::byte> data) {
  store_->write_part({buffer.offset.count, buffer.type.bytes()}, first, data);
}

}  // namespace plimsoll::executor
