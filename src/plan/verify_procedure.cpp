#include "plan/verify_procedure.h"

#include <utility>

#include "base/error.h"
#include "ops/definition.h"
#include "ops/live_rows.h"
#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

class ProcedureVerifier {
 public:
  ProcedureVerifier(const Plan& plan, const Procedure& procedure, std::int32_t rank, Report& report)
      : plan_(plan), procedure_(procedure), rank_(rank), report_(report) {
    for (const Slot& slot : procedure.slots) slot_written_.push_back(slot.access != Access::write);
    lifetimes_.assign(procedure.temporaries.size(), {-1, -1});
  }

  void run() {
    for (std::size_t index = 0; index < procedure_.instructions.size(); ++index) {
      moment_ = static_cast<std::int64_t>(index);
      match(
          procedure_.instructions[index], [&](const Compute& compute) { check_compute(compute); },
          [&](const Collective& collective) { check_collective(collective); }, [&](const Message& message) { check_message(message); },
          [&](const Copy& copy) { check_copy(copy); }, [&](const RowCopy& rows) { check_moved(rows.op, rows.inputs, rows.outputs); });
    }
    for (std::size_t index = 0; index < lifetimes_.size(); ++index) {
      const Temporary& temporary = procedure_.temporaries[index];
      if (lifetimes_[index].first < 0) continue;
      add_extent(temporary.name, temporary.offset, Bytes{temporary.type.bytes()}, lifetimes_[index].first, lifetimes_[index].second);
    }
    check_overlap(extents_, procedure_.name, [&](std::uint32_t owner) { return names_[owner]; }, report_);
  }

 private:
  void check_live(const Compute& compute) {
    const LiveRows& live = *compute.live;
    check_operand(compute.kernel, live.count, false);
    if (live.count.type != TensorType{base::DType::i32, base::Shape{1}})
      report_("{}: {} counts rows by {}", procedure_.name, compute.kernel, base::to_string(live.count.type));
    const auto check = [&](const std::vector<Operand>& operands, std::uint64_t bits) {
      for (std::size_t index = 0; index < operands.size(); ++index) {
        const TensorType& type = operands[index].type;
        if (LiveRows::has(bits, index) && !ops::has_rows(type, live.bound))
          report_("{}: {} sees {} as {} rows", procedure_.name, compute.kernel, base::to_string(type), live.bound);
      }
    };
    check(compute.inputs, live.inputs);
    check(compute.outputs, live.outputs);
  }

  void add_extent(std::string_view name, Bytes offset, Bytes bytes, std::int64_t first, std::int64_t last) {
    if (offset.count < 0 || offset.count % kAlignment.count != 0) report_("{}: {} starts at {}", procedure_.name, name, offset.count);
    if (offset + bytes > procedure_.frame)
      report_("{}: {} ends at {}, behind the frame of {} B", procedure_.name, name, (offset + bytes).count, procedure_.frame.count);
    extents_.push_back({static_cast<std::uint32_t>(names_.size()), offset.count, (offset + bytes).count, first, last});
    names_.emplace_back(name);
  }

  void check_compute(const Compute& compute) {
    for (const Operand& operand : compute.inputs) check_operand(compute.kernel, operand, false);
    if (compute.live) check_live(compute);
    for (const Operand& operand : compute.outputs) check_operand(compute.kernel, operand, true);
    if (compute.workspace.count > 0) add_extent(compute.kernel, compute.workspace_offset, compute.workspace, moment_, moment_);
  }

  void check_copy(const Copy& copy) {
    const std::string name = ops::to_string(copy.op);
    if (copy.from.type != copy.to.type) report_("{}: {} makes another type of tensor", procedure_.name, name);
    if (copy.op.from != copy.op.to && (copy.op.from == Tier::host) == (copy.op.to == Tier::host))
      report_("{}: {} skips the tier between its ends", procedure_.name, name);
    for (const Operand* operand : {&copy.from, &copy.to}) {
      if (operand->kind != Operand::Kind::slot) report_("{}: {} moves a temporary", procedure_.name, name);
    }
    check_operand(name, copy.from, false);
    check_operand(name, copy.to, true);
  }

  void check_collective(const Collective& collective) {
    if (plan_.mesh.find(collective.op.axis) == nullptr)
      return report_("{}: {} is over an axis that no rank is on", procedure_.name, ops::to_string(collective.op));
    const std::int32_t extent = plan_.mesh.extent(collective.op.axis, rank_);
    if (collective.op.members != extent || !plan_.mesh.sits_on(collective.op.axis, rank_))
      report_("{}: {} has {} members on an axis of {}", procedure_.name, ops::to_string(collective.op), collective.op.members, extent);
    check_moved(collective.op, collective.inputs, collective.outputs);
  }

  void check_message(const Message& message) {
    const std::int32_t places = plan_.mesh.extent(ops::Axis::pipe);
    if (message.op.peer < 0 || message.op.peer >= places) {
      report_("{}: {} is for place {} of a pipe axis of {}", procedure_.name, ops::to_string(message.op), message.op.peer, places);
    } else if (message.op.seat < 0 ||
               message.op.seat >= plan_.mesh.extent_at(ops::Axis::tensor, static_cast<std::int32_t>(message.op.peer))) {
      report_("{}: {} is for place {} of a tensor axis that is shorter", procedure_.name, ops::to_string(message.op), message.op.seat);
    }
    check_moved(message.op, message.inputs, message.outputs);
  }

  // What a collective or a message takes and gives has the types that its operator says.
  void check_moved(const ops::Op& op, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
    const std::string name = ops::to_string(op);
    for (const Operand& operand : inputs) check_operand(name, operand, false);
    for (const Operand& operand : outputs) check_operand(name, operand, true);
    try {
      const std::vector<TensorType> made = ops::definition_of(op).infer(op, types_of(inputs));
      for (std::size_t tensor = 0; tensor < made.size(); ++tensor) {
        if (tensor >= outputs.size() || made[tensor] != outputs[tensor].type)
          return report_("{}: {} gives {} as tensor {}", procedure_.name, name, base::to_string(made[tensor]), tensor);
      }
    } catch (const base::Error& error) {
      report_("{}: {}", procedure_.name, error.what());
    }
  }

  void check_operand(std::string_view user, const Operand& operand, bool written) {
    const bool is_slot = operand.kind == Operand::Kind::slot;
    const std::size_t limit = is_slot ? procedure_.slots.size() : procedure_.temporaries.size();
    if (operand.index >= limit) return report_("{}: {} names operand {} of {}", procedure_.name, user, operand.index, limit);
    const TensorType& held = is_slot ? procedure_.slots[operand.index].type : procedure_.temporaries[operand.index].type;
    const std::string& name = is_slot ? procedure_.slots[operand.index].name : procedure_.temporaries[operand.index].name;
    const std::int64_t room = is_slot ? procedure_.slots[operand.index].bytes.count : held.bytes();
    const std::int64_t last_shard = (plan_.mesh.extent(plan_.mesh.shard_axis(), rank_) - 1) * operand.shard.count;
    const std::int64_t needed = last_shard + operand.offset.count + operand.type.bytes();
    if (operand.shard.count < 0 || operand.offset.count < 0 || (!is_slot && operand.shard + operand.offset != Bytes{}))
      report_("{}: {} sees a part of {} that is none", procedure_.name, user, name);
    if (needed > room) {
      report_("{}: {} sees {} as {}, which holds only {}", procedure_.name, user, name, base::to_string(operand.type),
              base::to_string(held));
    }
    if (is_slot) {
      if (written && procedure_.slots[operand.index].access == Access::read)
        report_("{}: {} writes {}, which is only to be read", procedure_.name, user, name);
      if (!written && !slot_written_[operand.index]) report_("{}: {} reads {} before it is written", procedure_.name, user, name);
      if (written) slot_written_[operand.index] = true;
      return;
    }
    auto& [first, last] = lifetimes_[operand.index];
    if (!written && first < 0) report_("{}: {} reads {} before it is written", procedure_.name, user, name);
    if (first < 0) first = moment_;
    last = moment_;
  }

  const Plan& plan_;
  const Procedure& procedure_;
  std::int32_t rank_;
  Report& report_;
  std::vector<bool> slot_written_;
  std::vector<std::pair<std::int64_t, std::int64_t>> lifetimes_;
  std::vector<Extent> extents_;
  std::vector<std::string> names_;  // of what the extents are
  std::int64_t moment_ = 0;
};

}  // namespace

void check_procedure(const Plan& plan, const Procedure& procedure, std::int32_t rank, Report& report) {
  ProcedureVerifier(plan, procedure, rank, report).run();
}

}  // namespace plimsoll::plan
