#include "executor/core/disk_tier.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plan/instructions.h"

namespace plimsoll::executor {

using storage::disk::BlockStore;
using storage::disk::Records;

DiskTier::DiskTier(const plan::Plan& plan, const plan::RankClass& rank_class, const ExecutorOptions& options) : class_(rank_class) {
  const base::Bytes size = rank_class.arena[static_cast<std::size_t>(plan::Tier::disk)];
  if (size.count == 0) return;
  PLIMSOLL_CHECK(options.file_system != nullptr, "a plan with a disk tier and no files");
  storage::disk::check_folder(*options.file_system, options.disk_folder, size);
  find_tables(plan);
  storage::disk::BlockStoreOptions store{.folder = options.disk_folder, .size = size, .rank = options.rank};
  for (const Table& table : tables_) store.records.push_back(table.records);
  store_ = std::make_unique<BlockStore>(*options.file_system, std::move(store));
}

void DiskTier::find_tables(const plan::Plan& plan) {
  for (const plan::Program& program : class_.programs) {
    plan::match_all(plan, program, [&](const plan::Call& call, const plan::RowCopy& rows) { add_table(rows, call); }, plan::kIgnoreOthers);
  }
}

// Its tensors follow one another in the plan, and have together what their records take.
void DiskTier::add_table(const plan::RowCopy& copy, const plan::Call& call) {
  const auto buffer_of = [&](std::size_t index) -> const plan::Buffer& { return class_.buffers[call.bindings[copy.table(index).index]]; };
  if (place_of(buffer_of(0)).table != nullptr) return;
  const base::TensorType& type = copy.table(0).type;
  const std::int64_t row = type.shape[1] * base::size_of(type.dtype);
  Table table;
  table.records = {.offset = buffer_of(0).offset.count, .count = type.shape[0], .bytes = plan::record_bytes(type, copy.tables()).count};
  std::int64_t end = table.records.offset;
  for (std::size_t index = 0; index < copy.tables(); ++index) {
    const plan::Buffer& buffer = buffer_of(index);
    PLIMSOLL_CHECK(buffer.offset.count == end, "{} does not lie behind the tensor whose rows come with its own", buffer.name);
    end += base::round_up(buffer.bytes, plan::alignment_of(plan::Tier::disk)).count;
    table.columns.push_back({call.bindings[copy.table(index).index], row, static_cast<std::int64_t>(index) * row});
  }
  PLIMSOLL_CHECK(table.records.end() <= end, "{} has no room for its records", buffer_of(0).name);
  tables_.push_back(std::move(table));
}

DiskTier::Place DiskTier::place_of(const plan::Buffer& buffer) const {
  for (const Table& table : tables_) {
    for (const Column& column : table.columns) {
      if (&class_.buffers[column.buffer] == &buffer) return {&table, &column};
    }
  }
  return {};
}

bool DiskTier::touches(const plan::Instruction& instruction) {
  return plan::match(
      instruction, [](const plan::RowCopy&) { return true; },
      [](const plan::Copy& copy) { return copy.op.from == plan::Tier::disk || copy.op.to == plan::Tier::disk; },
      [](const auto&) { return false; });
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
    plan::match(
        instruction, [&](const plan::RowCopy& rows) { move_rows(rows, call, in_memory); },
        [&](const plan::Copy& moved) {
          if (moved.op.from == plan::Tier::disk) {
            read.push_back({on_disk(moved.from), memory_of(moved.to)});
          } else {
            written.push_back({on_disk(moved.to), memory_of(moved.from)});
          }
        },
        [](const auto& other) { PLIMSOLL_CHECK(false, "{} is on a stream of the disk", ops::to_string(other.op)); });
  }
  if (!read.empty()) store_->read(read);
  if (!written.empty()) store_->write(written);
}

void DiskTier::move_rows(const plan::RowCopy& copy, const plan::Call& call, const AddressOf& in_memory) {
  const Table& table = *place_of(class_.buffers[call.bindings[copy.table(0).index]]).table;
  const std::span ids(reinterpret_cast<const std::int32_t*>(in_memory(copy.ids())),
                      static_cast<std::size_t>(copy.ids().type.shape.elements()));
  const auto end = std::find_if(ids.begin(), ids.end(), [](std::int32_t id) { return id < 0; });
  const std::vector<std::int64_t> which(ids.begin(), end);
  std::vector<std::byte*> rows;
  for (std::size_t index = 0; index < copy.tables(); ++index) rows.push_back(in_memory(copy.rows(index)));
  if (copy.op.back) {
    return store_->write_records(table.records, which, [&](std::size_t place, std::span<std::byte> record) {
      std::memset(record.data(), 0, record.size());
      for (std::size_t index = 0; index < rows.size(); ++index) {
        const Column& column = table.columns[index];
        std::memcpy(record.data() + column.begin, rows[index] + static_cast<std::int64_t>(place) * column.bytes,
                    static_cast<std::size_t>(column.bytes));
      }
    });
  }
  store_->read_records(table.records, which, [&](std::size_t place, std::span<const std::byte> record) {
    for (std::size_t index = 0; index < rows.size(); ++index) {
      const Column& column = table.columns[index];
      std::memcpy(rows[index] + static_cast<std::int64_t>(place) * column.bytes, record.data() + column.begin,
                  static_cast<std::size_t>(column.bytes));
    }
  });
}

namespace {

// Bytes [first, first + size) of a tensor, row by row: which rows these are, and for each the part that is meant.
class RowRange {
 public:
  RowRange(std::int64_t row_bytes, std::int64_t first, std::size_t size)
      : row_bytes_(row_bytes), first_(first), end_(first + static_cast<std::int64_t>(size)) {
    for (std::int64_t row = first / row_bytes; row * row_bytes < end_; ++row) rows_.push_back(row);
  }

  const std::vector<std::int64_t>& rows() const { return rows_; }
  // Where the part of a row begins in the row and in the bytes, and its length.
  struct Part {
    std::int64_t in_row = 0;
    std::int64_t in_bytes = 0;
    std::size_t size = 0;
  };
  Part part(std::size_t index) const {
    const std::int64_t row = rows_[index] * row_bytes_;
    const std::int64_t begin = std::max(first_, row);
    return {begin - row, begin - first_, static_cast<std::size_t>(std::min(end_, row + row_bytes_) - begin)};
  }

 private:
  std::int64_t row_bytes_;
  std::int64_t first_;
  std::int64_t end_;
  std::vector<std::int64_t> rows_;
};

}  // namespace

void DiskTier::read(const plan::Buffer& buffer, std::int64_t first, std::span<std::byte> out) {
  const auto [table, column] = place_of(buffer);
  if (table == nullptr) return store_->read_part({buffer.offset.count, buffer.type.bytes()}, first, out);
  const RowRange range(column->bytes, first, out.size());
  store_->read_records(table->records, range.rows(), [&, begin = column->begin](std::size_t index, std::span<const std::byte> record) {
    const RowRange::Part part = range.part(index);
    std::memcpy(out.data() + part.in_bytes, record.data() + begin + part.in_row, part.size);
  });
}

void DiskTier::write(const plan::Buffer& buffer, std::int64_t first, std::span<const std::byte> data) {
  const auto [table, column] = place_of(buffer);
  if (table == nullptr) return store_->write_part({buffer.offset.count, buffer.type.bytes()}, first, data);
  const RowRange range(column->bytes, first, data.size());
  store_->change_records(table->records, range.rows(), [&, begin = column->begin](std::size_t index, std::span<std::byte> record) {
    const RowRange::Part part = range.part(index);
    std::memcpy(record.data() + begin + part.in_row, data.data() + part.in_bytes, part.size);
  });
}

}  // namespace plimsoll::executor
