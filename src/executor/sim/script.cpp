#include "executor/sim/script.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "cost/operator.h"
#include "cost/transfer.h"
#include "executor/sim/meetings.h"
#include "ops/live_rows.h"
#include "plan/instructions.h"

namespace plimsoll::executor::sim {

namespace {

Step moved(Step::Kind kind, const cost::Transfer& transfer) {
  Step step{.kind = kind, .seconds = transfer.seconds};
  step.bytes = {transfer.inside, transfer.across, transfer.host, transfer.disk};
  step.wire = transfer.across > 0.0 ? Wire::across : transfer.inside > 0.0 ? Wire::inside : Wire::none;
  return step;
}

// Prices the procedures that one class calls.
class Pricing {
 public:
  Pricing(const plan::Plan& plan, const plan::RankClass& rank_class, const cluster::Cluster& cluster, const Meetings& meetings)
      : plan_(plan),
        class_(rank_class),
        cluster_(cluster),
        meetings_(meetings),
        users_(std::min<std::int64_t>(cluster.devices_per_node, plan.mesh.ranks())) {}

  Routine routine(const plan::Procedure& procedure, const plan::Call& call) const {
    Routine routine{.name = procedure.name, .steps = {}};
    for (const plan::Instruction& instruction : procedure.instructions) {
      plan::match(
          instruction, [&](const plan::Compute& compute) { add_compute(routine, compute, call); },
          [&](const plan::Collective& collective) { routine.steps.push_back(meeting(collective)); },
          [&](const plan::Message& message) { routine.steps.push_back(message_step(message, call)); },
          [&](const plan::Copy& copy) { add_copy(routine, copy); },
          [&](const plan::RowCopy& rows) {
            const plan::Bytes bytes = plan::moved_bytes(rows);
            routine.steps.push_back(rows.op.back ? copy_step(plan::Tier::host, plan::Tier::disk, bytes)
                                                 : copy_step(plan::Tier::disk, plan::Tier::host, bytes));
          });
    }
    return routine;
  }

 private:
  // With the rows that are expected, where they are bounded.
  static std::vector<base::TensorType> expected_types(const std::vector<plan::Operand>& operands, const std::optional<plan::LiveRows>& live,
                                                      std::uint64_t bits) {
    std::vector<base::TensorType> types = plan::types_of(operands);
    for (std::size_t index = 0; index < types.size(); ++index) {
      if (live && plan::LiveRows::has(bits, index))
        types[index] = ops::with_rows(types[index], live->bound, ops::expected_rows(live->bound, live->expected));
    }
    return types;
  }

  void add_compute(Routine& routine, const plan::Compute& compute, const plan::Call& call) const {
    const std::vector<base::TensorType> inputs = expected_types(compute.inputs, compute.live, compute.live ? compute.live->inputs : 0);
    const std::vector<base::TensorType> outputs = expected_types(compute.outputs, compute.live, compute.live ? compute.live->outputs : 0);
    routine.flops += cost::counted_flops(compute.op, inputs, outputs);
    const bool host = on_host(compute, call);
    add_work(routine, compute_seconds(compute, inputs, outputs, host), host);
  }

  void add_copy(Routine& routine, const plan::Copy& copy) const {
    if (copy.op.from == copy.op.to) {
      add_work(routine, copy_inside_seconds(copy), copy.op.from != ops::Tier::device);
    } else {
      routine.steps.push_back(copy_step(copy.op.from, copy.op.to, plan::Bytes{copy.from.type.bytes()}));
    }
  }

  static void add_work(Routine& routine, double seconds, bool on_host) {
    if (!routine.steps.empty() && routine.steps.back().kind == Step::Kind::work && routine.steps.back().on_host == on_host) {
      routine.steps.back().seconds += seconds;
    } else {
      routine.steps.push_back({.kind = Step::Kind::work, .on_host = on_host, .seconds = seconds});
    }
  }

  bool on_host(const plan::Compute& compute, const plan::Call& call) const {
    const auto here = [&](const plan::Operand& operand) {
      return operand.kind == plan::Operand::Kind::slot && operand.index < call.bindings.size() &&
             class_.buffers[call.bindings[operand.index]].tier != plan::Tier::device;
    };
    return std::any_of(compute.outputs.begin(), compute.outputs.end(), here);
  }

  double compute_seconds(const plan::Compute& compute, ops::Types inputs, ops::Types outputs, bool host) const {
    if (host) return cost::host_operator_seconds(cluster_, compute.op, inputs, outputs, users_, plan_.threads);
    return cost::operator_seconds(cluster_.device, compute.op, inputs, outputs, cluster_.device.cores > 0 ? plan_.threads : 0);
  }

  // Tensors of a bucket go as one, except where ranks meet in memory: there each is a meeting.
  Step meeting(const plan::Collective& collective) const {
    double bytes = 0.0;
    for (std::size_t index = 0; index < collective.inputs.size(); ++index) {
      const base::TensorType& given = collective.inputs[index].type;
      const base::TensorType& made = collective.outputs[index].type;
      bytes += static_cast<double>(std::max(given.bytes(), made.bytes()) - collective.op.first * base::size_of(given.dtype));
    }
    cost::Transfer transfer = meetings_.collective(class_, collective.op, bytes);
    if (cluster_.device.cores > 0) transfer.seconds += transfer.latency * static_cast<double>(collective.inputs.size() - 1);
    Step step = moved(Step::Kind::meet, transfer);
    step.axis = plan_.mesh.index(collective.op.axis);
    return step;
  }

  Step message_step(const plan::Message& message, const plan::Call& call) const {
    const base::TensorType type{message.op.dtype, message.op.shape};
    Step step = moved(message.op.receive ? Step::Kind::receive : Step::Kind::send,
                      meetings_.message(class_, message.op, call.micro_batch, static_cast<double>(type.bytes())));
    if (message.op.receive) step.bytes = {};
    step.message = message.op;
    return step;
  }

  // Read and written in one tier.
  double copy_inside_seconds(const plan::Copy& copy) const {
    const double bandwidth = copy.op.from == ops::Tier::device ? cluster_.device.bandwidth * cluster_.device.bandwidth_share
                                                               : cluster_.host.bandwidth / static_cast<double>(users_);
    return cluster_.device.launch + 2.0 * static_cast<double>(copy.from.type.bytes()) / bandwidth;
  }

  Step copy_step(plan::Tier from, plan::Tier to, plan::Bytes bytes) const {
    Step step = moved(Step::Kind::copy, cost::copy(cluster_, from, to, static_cast<double>(bytes.count), users_));
    const bool out = to > from;
    const bool to_disk = to == ops::Tier::disk || from == ops::Tier::disk;
    const cluster::Link* link = cluster_.find(to_disk ? cluster::Reach::disk : cluster::Reach::host);
    const bool one_way = link != nullptr && !link->both_ways;
    step.wire = to_disk ? (out || one_way ? Wire::disk_out : Wire::disk_in) : (out || one_way ? Wire::host_out : Wire::host_in);
    return step;
  }

  const plan::Plan& plan_;
  const plan::RankClass& class_;
  const cluster::Cluster& cluster_;
  const Meetings& meetings_;
  std::int64_t users_;
};

bool has_message(const plan::Procedure& procedure) {
  return std::any_of(procedure.instructions.begin(), procedure.instructions.end(), [](const plan::Instruction& instruction) {
    return plan::match(instruction, [](const plan::Message&) { return true; }, [](const auto&) { return false; });
  });
}

constexpr std::string_view kForward = ".forward";
constexpr std::string_view kAgain = ".recompute";

// A second run leaves out what nobody reads; from this share of the first on it is counted like it.
constexpr double kMostly = 0.5;

// The flops of each block's forward pass, to count what is run again.
class Counting {
 public:
  // In the order of the program: a block's forward pass comes first.
  void count(Turn& turn, std::string_view name, double flops) {
    turn.flops = flops;
    if (name.ends_with(kForward)) first_[std::string(name.substr(0, name.size() - kForward.size()))] = flops;
    turn.again = name.ends_with(kAgain);
    if (!turn.again) return;
    const auto found = first_.find(name.substr(0, name.size() - kAgain.size()));
    if (found != first_.end() && flops > kMostly * found->second) turn.flops = found->second;
  }

 private:
  std::map<std::string, double, std::less<>> first_;
};

}  // namespace

Script priced(const plan::Plan& plan, std::string_view program_name, const cluster::Cluster& cluster) {
  Script script{.plan = &plan, .routines = {}, .parts = {}};
  const Meetings meetings(plan, program_name, cluster);
  for (const plan::RankClass& rank_class : plan.classes) {
    const plan::Program* program = plan::find_program(rank_class, program_name);
    if (program == nullptr) base::bad_input("the plan has no program \"{}\" for {}", program_name, rank_class.name);
    const Pricing pricing(plan, rank_class, cluster, meetings);
    // Where places of the pipe axis have degrees of their own, where a message goes depends on its micro-batch.
    std::map<std::pair<std::uint32_t, std::int32_t>, std::uint32_t> routine_of;
    Part part{.rank_class = &rank_class, .lanes = {}, .waits = {}, .tokens = program->tokens};
    Counting counting;
    for (const plan::Stream& stream : program->streams) {
      Lane& lane = part.lanes.emplace_back(Lane{.kind = stream.kind, .turns = {}});
      lane.turns.reserve(stream.calls.size());
      for (const plan::Call& call : stream.calls) {
        const plan::Procedure& procedure = plan.procedures[program->procedure_of(call)];
        const std::int32_t which = plan.mesh.even() || !has_message(procedure) ? 0 : call.micro_batch;
        const auto [found, fresh] =
            routine_of.try_emplace({program->procedure_of(call).index, which}, static_cast<std::uint32_t>(script.routines.size()));
        if (fresh) script.routines.push_back(pricing.routine(procedure, call));
        lane.turns.push_back({.routine = found->second,
                              .micro_batch = call.micro_batch,
                              .first_wait = static_cast<std::uint32_t>(part.waits.size()),
                              .waits = static_cast<std::uint32_t>(call.waits.size()),
                              .signals = call.signals.valid() ? call.signals.index : kNoToken});
        counting.count(lane.turns.back(), call.label.empty() ? procedure.name : call.label.text(), script.routines[found->second].flops);
        for (plan::TokenId token : call.waits) part.waits.push_back(token.index);
      }
    }
    script.parts.push_back(std::move(part));
  }
  return script;
}

}  // namespace plimsoll::executor::sim
