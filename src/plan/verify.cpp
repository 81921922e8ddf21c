#include "plan/verify.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/parallel.h"
#include "ops/definition.h"
#include "plan/meetings.h"
#include "plan/order.h"

namespace plimsoll::plan {

namespace {

class Report {
 public:
  template <typename... Args>
  void operator()(fmt::format_string<Args...> format, Args&&... args) {
    found.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> found;
};

// A stretch of memory that is in use from moment `first` to moment `last`.
struct Extent {
  std::string_view name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Reports a pair that shares a byte at a moment. Sweeps by moment: what is alive is in the order of its addresses, without overlap, so a
// newcomer is compared with its neighbours alone.
void check_overlap(std::vector<Extent> extents, std::string_view where, Report& report) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.first < b.first; });
  std::map<std::int64_t, const Extent*> alive;  // by begin
  using End = std::pair<std::int64_t, std::int64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;  // last moment, begin
  for (const Extent& extent : extents) {
    for (; !ends.empty() && ends.top().first < extent.first; ends.pop()) alive.erase(ends.top().second);
    const auto next = alive.lower_bound(extent.begin);
    const Extent* other = next != alive.end() && next->second->begin < extent.end ? next->second : nullptr;
    if (next != alive.begin() && std::prev(next)->second->end > extent.begin) other = std::prev(next)->second;
    if (other != nullptr) {
      return report("{}: {} [{}, {}) and {} [{}, {}) are alive at once and overlap", where, other->name, other->begin, other->end,
                    extent.name, extent.begin, extent.end);
    }
    alive.emplace_hint(next, extent.begin, &extent);
    ends.emplace(extent.last, extent.begin);
  }
}

class ProcedureVerifier {
 public:
  // `rank` is one that calls it: degrees of the mesh are as that rank has them.
  ProcedureVerifier(const Plan& plan, const Procedure& procedure, std::int32_t rank, Report& report)
      : plan_(plan), procedure_(procedure), rank_(rank), report_(report) {
    for (const Slot& slot : procedure.slots) slot_written_.push_back(slot.access != Access::write);
    lifetimes_.assign(procedure.temporaries.size(), {-1, -1});
  }

  void run() {
    for (std::size_t index = 0; index < procedure_.instructions.size(); ++index) {
      moment_ = static_cast<std::int64_t>(index);
      if (const auto* collective = std::get_if<Collective>(&procedure_.instructions[index])) {
        check_collective(*collective);
        continue;
      }
      if (const auto* message = std::get_if<Message>(&procedure_.instructions[index])) {
        check_message(*message);
        continue;
      }
      if (const auto* copy = std::get_if<Copy>(&procedure_.instructions[index])) {
        check_copy(*copy);
        continue;
      }
      const auto& compute = std::get<Compute>(procedure_.instructions[index]);
      for (const Operand& operand : compute.inputs) check_operand(compute.kernel, operand, false);
      for (const Operand& operand : compute.outputs) check_operand(compute.kernel, operand, true);
      if (compute.workspace.count > 0) add_extent(compute.kernel, compute.workspace_offset, compute.workspace, moment_, moment_);
    }
    for (std::size_t index = 0; index < lifetimes_.size(); ++index) {
      const Temporary& temporary = procedure_.temporaries[index];
      if (lifetimes_[index].first < 0) continue;
      add_extent(temporary.name, temporary.offset, Bytes{temporary.type.bytes()}, lifetimes_[index].first, lifetimes_[index].second);
    }
    check_overlap(extents_, procedure_.name, report_);
  }

 private:
  void add_extent(std::string_view name, Bytes offset, Bytes bytes, std::int64_t first, std::int64_t last) {
    if (offset.count < 0 || offset.count % kAlignment.count != 0) report_("{}: {} starts at {}", procedure_.name, name, offset.count);
    if (offset + bytes > procedure_.frame)
      report_("{}: {} ends at {}, behind the frame of {} B", procedure_.name, name, (offset + bytes).count, procedure_.frame.count);
    extents_.push_back({name, offset.count, (offset + bytes).count, first, last});
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
    const std::int32_t extent = plan_.mesh.extent(collective.op.axis, rank_);
    if (collective.op.members != extent || !plan_.mesh.sits_on(collective.op.axis, rank_))
      report_("{}: {} has {} members on an axis of {}", procedure_.name, ops::to_string(collective.op), collective.op.members, extent);
    check_moved(collective.op, collective.inputs, collective.outputs);
  }

  void check_message(const Message& message) {
    if (message.op.peer < 0 || message.op.peer >= plan_.mesh.pipe) {
      report_("{}: {} is for place {} of a pipe axis of {}", procedure_.name, ops::to_string(message.op), message.op.peer, plan_.mesh.pipe);
    } else if (message.op.seat < 0 || message.op.seat >= plan_.mesh.degrees(static_cast<std::int32_t>(message.op.peer)).tensor) {
      report_("{}: {} is for place {} of a tensor axis that is shorter", procedure_.name, ops::to_string(message.op), message.op.seat);
    }
    check_moved(message.op, message.inputs, message.outputs);
  }

  // What a collective or a message takes and gives has the types that its operator says.
  void check_moved(const ops::Op& op, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
    const std::string name = ops::to_string(op);
    for (const Operand& operand : inputs) check_operand(name, operand, false);
    for (const Operand& operand : outputs) check_operand(name, operand, true);
    std::vector<TensorType> given;
    for (const Operand& operand : inputs) given.push_back(operand.type);
    try {
      const std::vector<TensorType> made = ops::definition_of(op).infer(op, given);
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
    const std::int64_t last_shard = (plan_.mesh.extent(ops::Axis::data_inner, rank_) - 1) * operand.shard.count;
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
  std::int64_t moment_ = 0;
};

class ProgramVerifier {
 public:
  ProgramVerifier(const Plan& plan, const RankClass& rank_class, std::int32_t index, Report& report)
      : plan_(plan), class_(rank_class), index_(index), program_(rank_class.programs[static_cast<std::size_t>(index)]), report_(report) {}

  // Runs the streams against each other, each as far as its tokens allow: what is left when none moves is a deadlock.
  void run() {
    written_.assign(class_.buffers.size(), false);
    for (std::uint32_t id = 0; id < class_.buffers.size(); ++id) {
      const Buffer& buffer = class_.buffers[BufferId{id}];
      written_[id] = buffer.persistent() || buffer.kind == BufferKind::input;
    }
    std::vector<bool> signalled(program_.tokens, false);
    std::vector<std::size_t> next(program_.streams.size(), 0);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t stream = 0; stream < program_.streams.size(); ++stream) {
        const std::vector<Call>& calls = program_.streams[stream].calls;
        while (next[stream] < calls.size() && ready(calls[next[stream]], signalled)) {
          const Call& call = calls[next[stream]];
          check_call(call, call.moment);
          if (call.signals.valid() && call.signals.index < signalled.size()) signalled[call.signals.index] = true;
          ++next[stream];
          moved = true;
        }
      }
    }
    for (std::size_t stream = 0; stream < program_.streams.size(); ++stream) {
      const std::vector<Call>& calls = program_.streams[stream].calls;
      if (next[stream] < calls.size())
        report_("{}: {} waits for ever on stream {}", program_.name, calls[next[stream]].label, name_of(program_.streams[stream].kind));
    }
    check_moments();
    check_lives();
    check_memory();
  }

 private:
  bool ready(const Call& call, const std::vector<bool>& signalled) {
    return std::all_of(call.waits.begin(), call.waits.end(),
                       [&](TokenId token) { return token.index < signalled.size() && signalled[token.index]; });
  }

  void check_call(const Call& call, std::int32_t moment) {
    if (call.procedure.index >= plan_.procedures.size())
      return report_("{}: {} calls procedure {}", program_.name, call.label, call.procedure.index);
    const Procedure& procedure = plan_.procedures[call.procedure];
    if (call.bindings.size() != procedure.slots.size()) {
      return report_("{}: {} binds {} of {} slots", program_.name, call.label, call.bindings.size(), procedure.slots.size());
    }
    for (std::size_t slot = 0; slot < call.bindings.size(); ++slot) {
      if (call.bindings[slot].index >= class_.buffers.size()) {
        report_("{}: {} binds buffer {}", program_.name, call.label, call.bindings[slot].index);
        continue;
      }
      check_binding(call, procedure.slots[slot], call.bindings[slot], moment);
    }
    for (const Instruction& instruction : procedure.instructions) check_tiers(call, instruction);
    if (procedure.frame.count > 0) {
      const bool fits = call.frame.index < class_.buffers.size() && class_.buffers[call.frame].bytes >= procedure.frame;
      if (!fits) report_("{}: {} has no frame of {} B", program_.name, call.label, procedure.frame.count);
    }
  }

  // A copy goes between the tiers it says; everything else has its operands in one.
  void check_tiers(const Call& call, const Instruction& instruction) {
    const auto tier = [&](const Operand& operand) -> std::optional<Tier> {
      if (operand.kind != Operand::Kind::slot || operand.index >= call.bindings.size()) return std::nullopt;
      const BufferId id = call.bindings[operand.index];
      return id.index < class_.buffers.size() ? std::optional(class_.buffers[id].tier) : std::nullopt;
    };
    if (const auto* copy = std::get_if<Copy>(&instruction)) {
      if (tier(copy->from) != copy->op.from || tier(copy->to) != copy->op.to)
        report_("{}: {} copies between other tiers than it says", program_.name, call.label);
      return;
    }
    std::array<bool, kTiers> tiers{};
    std::visit(
        [&](const auto& moved) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(moved)>, Copy>) {
            for (const std::vector<Operand>* operands : {&moved.inputs, &moved.outputs}) {
              for (const Operand& operand : *operands) {
                if (const std::optional<Tier> found = tier(operand)) tiers.at(static_cast<std::size_t>(*found)) = true;
              }
            }
          }
        },
        instruction);
    if (std::count(tiers.begin(), tiers.end(), true) > 1 || tiers[static_cast<std::size_t>(Tier::disk)])
      report_("{}: {} works on several tiers at once", program_.name, call.label);
  }

  void check_binding(const Call& call, const Slot& slot, BufferId id, std::int32_t moment) {
    const Buffer& buffer = class_.buffers[id];
    if (buffer.type != slot.type) {
      report_("{}: {} binds {} {} to {} {}", program_.name, call.label, buffer.name, base::to_string(buffer.type), slot.name,
              base::to_string(slot.type));
    }
    if (buffer.bytes < slot.bytes)
      report_("{}: {} binds {} of {} B to {}, which needs {} B", program_.name, call.label, buffer.name, buffer.bytes.count, slot.name,
              slot.bytes.count);
    if (slot.access != Access::write && !written_[id.index])
      report_("{}: {} reads {} before it is written", program_.name, call.label, buffer.name);
    if (slot.access != Access::read) written_[id.index] = true;
    if (!buffer.persistent() && (buffer.program != index_ || moment < buffer.first || moment > buffer.last)) {
      report_("{}: {} uses {} at call {}, outside its life [{}, {}]", program_.name, call.label, buffer.name, moment, buffer.first,
              buffer.last);
    }
  }

  // Each moment is one call's, and a stream runs its calls in their order.
  void check_moments() {
    std::vector<bool> taken(static_cast<std::size_t>(moments_of(program_)), false);
    for (const Stream& stream : program_.streams) {
      std::int32_t before = -1;
      for (const Call& call : stream.calls) {
        const bool good =
            call.moment > before && static_cast<std::size_t>(call.moment) < taken.size() && !taken[static_cast<std::size_t>(call.moment)];
        if (!good) return report_("{}: {} has moment {}, out of order", program_.name, call.label, call.moment);
        taken[static_cast<std::size_t>(call.moment)] = true;
        before = call.moment;
      }
    }
  }

  void check_lives() {
    const auto calls = static_cast<std::size_t>(moments_of(program_));
    for (const Buffer& buffer : class_.buffers) {
      if (buffer.program != index_) continue;
      if (buffer.first < 0 || buffer.first > buffer.last || static_cast<std::size_t>(buffer.last) >= calls) {
        report_("{}: {} lives in calls [{}, {}] of {}", program_.name, buffer.name, buffer.first, buffer.last, calls);
      }
    }
  }

  void check_memory() {
    constexpr std::int64_t kForever = 1'000'000'000;
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      std::vector<Extent> extents;
      for (const Buffer& buffer : class_.buffers) {
        if (static_cast<std::size_t>(buffer.tier) != tier || (!buffer.persistent() && buffer.program != index_)) continue;
        const bool always = buffer.persistent();
        extents.push_back({buffer.name, buffer.offset.count, (buffer.offset + buffer.bytes).count, always ? 0 : buffer.first,
                           always ? kForever : buffer.last});
      }
      check_overlap(std::move(extents), fmt::format("{}, {}", program_.name, kTiers > tier ? name_of(static_cast<Tier>(tier)) : "?"),
                    report_);
    }
  }

  const Plan& plan_;
  const RankClass& class_;
  std::int32_t index_;
  const Program& program_;
  Report& report_;
  std::vector<bool> written_;
};

void check_arenas(const RankClass& rank_class, Report& report) {
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    Bytes highest{0};
    for (const Buffer& buffer : rank_class.buffers) {
      if (static_cast<std::size_t>(buffer.tier) != tier) continue;
      if (buffer.bytes.count < buffer.type.bytes())
        report("{} has {} B for {}", buffer.name, buffer.bytes.count, base::to_string(buffer.type));
      const Bytes alignment = alignment_of(buffer.tier);
      if (buffer.offset.count < 0 || buffer.offset.count % alignment.count != 0)
        report("{} starts at {}", buffer.name, buffer.offset.count);
      highest = std::max(highest, buffer.offset + base::round_up(buffer.bytes, alignment));
    }
    if (highest != rank_class.arena[tier]) {
      report("the {} arena of {} has {} B, its buffers need {} B", name_of(static_cast<Tier>(tier)), rank_class.name,
             rank_class.arena[tier].count, highest.count);
    }
  }
}

}  // namespace

namespace {

// Of each procedure, a rank that calls it. What ranks with different degrees share depends on none of them.
std::vector<std::int32_t> callers_of(const Plan& plan) {
  std::vector<std::int32_t> callers(plan.procedures.size(), 0);
  for (const RankClass& rank_class : plan.classes) {
    for (const Program& program : rank_class.programs) {
      for (const Stream& stream : program.streams) {
        for (const Call& call : stream.calls) {
          if (call.procedure.index < callers.size()) callers[call.procedure.index] = rank_class.ranks.front();
        }
      }
    }
  }
  return callers;
}

std::vector<std::string> problems_of(const Plan& plan, const RankClass& rank_class) {
  Report report;
  check_arenas(rank_class, report);
  for (std::size_t index = 0; index < rank_class.programs.size(); ++index) {
    ProgramVerifier(plan, rank_class, static_cast<std::int32_t>(index), report).run();
    if (!report.found.empty()) continue;
    const std::optional<std::string> race = order_problem(rank_class, static_cast<std::int32_t>(index));
    if (race) report("{}", *race);
  }
  return std::move(report.found);
}

}  // namespace

std::vector<std::string> problems(const Plan& plan) {
  Report report;
  std::set<std::int32_t> ranks;
  for (const RankClass& rank_class : plan.classes) {
    if (rank_class.ranks.empty()) report("{} has no ranks", rank_class.name);
    for (std::int32_t rank : rank_class.ranks) {
      if (rank < 0 || rank >= plan.mesh.ranks()) report("rank {} of {} is not on the mesh", rank, rank_class.name);
      if (!ranks.insert(rank).second) report("rank {} is in two classes", rank);
    }
  }
  if (!report.found.empty()) return std::move(report.found);
  const std::vector<std::int32_t> callers = callers_of(plan);
  for (std::uint32_t id = 0; id < plan.procedures.size(); ++id)
    ProcedureVerifier(plan, plan.procedures[ProcedureId{id}], callers[id], report).run();
  // Classes have nothing to do with each other until they meet, and hundreds of them take seconds.
  std::vector<std::vector<std::string>> of_class(plan.classes.size());
  const auto threads = std::min<std::int64_t>(std::thread::hardware_concurrency(), static_cast<std::int64_t>(plan.classes.size()));
  base::in_parallel(std::max<std::int64_t>(1, threads), [&](std::int64_t thread) {
    for (auto index = static_cast<std::size_t>(thread); index < plan.classes.size(); index += static_cast<std::size_t>(threads))
      of_class[index] = problems_of(plan, plan.classes[index]);
  });
  for (std::vector<std::string>& found : of_class) std::move(found.begin(), found.end(), std::back_inserter(report.found));
  if (report.found.empty()) {
    for (std::string& problem : meeting_problems(plan)) report.found.push_back(std::move(problem));
  }
  return std::move(report.found);
}

void verify(const Plan& plan, std::string_view after) {
  const std::vector<std::string> found = problems(plan);
  PLIMSOLL_CHECK(found.empty(), "after {}: {} problems, the first: {}", after, found.size(), found.front());
}

}  // namespace plimsoll::plan
