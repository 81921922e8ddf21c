// The disk tier of a rank as an executor of any device uses it: copies of a call between the host's memory and the drive, and any bytes of
// a buffer for what is done between programs.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "executor/core/backend.h"
#include "plan/plan.h"
#include "storage/disk/block_store.h"

namespace plimsoll::executor {

class DiskTier {
 public:
  // Opens the scratch file where the plan has such a tier. bad_input or not_legal when the folder cannot hold it.
  DiskTier(const plan::RankClass& rank_class, const ExecutorOptions& options);

  static bool touches(const plan::Instruction& instruction);

  // All copies of a call of a disk stream, in one go. `in_memory`: where an operand in the host's memory starts.
  using AddressOf = std::function<std::byte*(const plan::Operand&)>;
  void copy(const plan::Procedure& procedure, const plan::Call& call, std::int64_t shard_place, const AddressOf& in_memory);

  void read(const plan::Buffer& buffer, std::int64_t first, std::span<std::byte> out);
  void write(const plan::Buffer& buffer, std::int64_t first, std::span<const std::byte> data);

 private:
  const plan::RankClass& class_;
  std::unique_ptr<storage::disk::BlockStore> store_;  // null: the plan has nothing on disk
};

}  // namespace plimsoll::executor
