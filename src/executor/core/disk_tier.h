// The disk tier of a rank as an executor of any device uses it: copies of a call between the host's memory and the drive, and any bytes of
// a buffer for what is done between programs.
//
// Tables whose rows are moved together (plan::RowCopy) lie together: row r of all of them is one record of the store, so that a row with
// its moments is one transfer and has one checksum. To everybody else each is a tensor like any other.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "executor/core/backend.h"
#include "plan/plan.h"
#include "storage/disk/block_store.h"

namespace plimsoll::executor {

class DiskTier {
 public:
  // Opens the scratch file where the plan has such a tier. bad_input or not_legal when the folder cannot hold it.
  DiskTier(const plan::Plan& plan, const plan::RankClass& rank_class, const ExecutorOptions& options);

  static bool touches(const plan::Instruction& instruction);

  // All copies of a call of a disk stream, in one go. `in_memory`: where an operand in the host's memory starts.
  using AddressOf = std::function<std::byte*(const plan::Operand&)>;
  void copy(const plan::Procedure& procedure, const plan::Call& call, std::int64_t shard_place, const AddressOf& in_memory);

  void read(const plan::Buffer& buffer, std::int64_t first, std::span<std::byte> out);
  void write(const plan::Buffer& buffer, std::int64_t first, std::span<const std::byte> data);

 private:
  // Of a table whose rows are moved.
  struct Column {
    plan::BufferId buffer;
    std::int64_t bytes = 0;  // of a row
    std::int64_t begin = 0;  // in the record
  };
  struct Table {
    storage::disk::Records records;
    std::vector<Column> columns;
  };
  struct Place {
    const Table* table = nullptr;
    const Column* column = nullptr;
  };

  void find_tables(const plan::Plan& plan);
  void add_table(const plan::RowCopy& copy, const plan::Call& call);
  Place place_of(const plan::Buffer& buffer) const;
  void move_rows(const plan::RowCopy& copy, const plan::Call& call, const AddressOf& in_memory);

  const plan::RankClass& class_;
  std::vector<Table> tables_;
  std::unique_ptr<storage::disk::BlockStore> store_;  // null: the plan has nothing on disk
};

}  // namespace plimsoll::executor
