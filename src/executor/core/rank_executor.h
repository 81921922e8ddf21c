// What executors of every device do alike: they hold one rank's part of a plan, find its programs by name, reach what lies on disk, and
// know where the operands of a call are.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "collectives/transport.h"
#include "executor/core/backend.h"
#include "executor/core/disk_tier.h"
#include "executor/core/executor.h"
#include "executor/core/timeline.h"
#include "executor/core/tokens.h"
#include "plan/plan.h"

namespace plimsoll::executor {

constexpr std::size_t kMaxOperands = 16;  // of a kernel, in and out each

// One of the five pointers is set.
struct InstructionView {
  explicit InstructionView(const plan::Instruction& instruction);

  const plan::Compute* compute = nullptr;
  const plan::Collective* collective = nullptr;
  const plan::Message* message = nullptr;
  const plan::Copy* copy = nullptr;
  const plan::RowCopy* rows = nullptr;
  std::string name;    // for timelines
  std::string detail;  // the kernel, the axis, the other rank, the two tiers
};

// A call and where its buffers start; null for what lies on disk.
struct CallMemory {
  const plan::Call* call = nullptr;
  plan::ProcedureId procedure;
  std::vector<std::byte*> slots;
  std::byte* frame = nullptr;
};

class RankExecutor : public Executor {
 public:
  void run(std::string_view name, Timeline* timeline) override;
  void read(plan::BufferId id, std::int64_t first, std::span<std::byte> out) override;
  void write(plan::BufferId id, std::int64_t first, std::span<const std::byte> data) override;
  const plan::RankClass& rank_class() const override { return class_; }
  std::int64_t data_place() const override { return shard_place_; }

 protected:
  RankExecutor(const plan::Plan& plan, const ExecutorOptions& options);

  // The program at that place in the rank's class.
  virtual void run_program(std::size_t index, Timeline* timeline) = 0;

  // Of a buffer that is not on disk.
  virtual std::byte* address(plan::BufferId id) const = 0;

  CallMemory locate(const plan::Program& program, const plan::Call& call) const;
  std::byte* address_of(const plan::Procedure& procedure, const CallMemory& memory, const plan::Operand& operand) const {
    if (operand.kind == plan::Operand::Kind::temporary) return memory.frame + procedure.temporaries[operand.index].offset.count;
    return memory.slots[operand.index] + shard_place_ * operand.shard.count + operand.offset.count;
  }

  // What looking into an instruction takes (Timeline::looks): the name of the first operand with a number that is not finite, or an empty
  // one; and, of what it read and what it gave, what there is to tell.
  using AllFinite = std::function<bool(const std::byte* data, const base::TensorType& type)>;
  std::string not_finite_in(const plan::Procedure& procedure, const CallMemory& memory, const std::vector<plan::Operand>& operands,
                            const AllFinite& all_finite) const;
  NotFinite not_finite_at(const InstructionView& instruction, const plan::Call& call, const std::string& read, const std::string& given,
                          double when) const;

  // A stream died of `error`: this rank's other streams and the other ranks are not to wait for it.
  void give_up(Tokens& tokens, const std::exception_ptr& error);

  const plan::Plan& plan_;
  const plan::RankClass& class_;
  const std::int64_t shard_place_;  // which shard of a shared buffer is this rank's
  DiskTier disk_;

 private:
  collectives::Transport* transport_;
};

}  // namespace plimsoll::executor
