#include "plan/verify.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/parallel.h"
#include "plan/alike.h"
#include "plan/instructions.h"
#include "plan/meetings.h"
#include "plan/order.h"
#include "plan/problems.h"
#include "plan/programs.h"
#include "plan/verify_procedure.h"

namespace plimsoll::plan {

namespace {

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
    check_touches();
  }

 private:
  bool ready(const Call& call, const std::vector<bool>& signalled) {
    return std::all_of(call.waits.begin(), call.waits.end(),
                       [&](TokenId token) { return token.index < signalled.size() && signalled[token.index]; });
  }

  void check_call(const Call& call, std::int32_t moment) {
    const ProcedureId id = program_.procedure_of(call);
    if (id.index >= plan_.procedures.size()) return report_("{}: {} calls procedure {}", program_.name, call.label, id.index);
    const Procedure& procedure = plan_.procedures[id];
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
    match(
        instruction,
        [&](const Copy& copy) {
          if (tier(copy.from) != copy.op.from || tier(copy.to) != copy.op.to)
            report_("{}: {} copies between other tiers than it says", program_.name, call.label);
        },
        [&](const RowCopy& rows) {
          bool right = tier(rows.ids()) == Tier::host;
          for (std::size_t table = 0; table < rows.tables(); ++table)
            right = right && tier(rows.table(table)) == Tier::disk && tier(rows.rows(table)) == Tier::host;
          if (!right) report_("{}: {} moves rows between other tiers than the disk and the host's memory", program_.name, call.label);
        },
        [&](const auto& other) {
          std::array<bool, kTiers> tiers{};
          for (const std::vector<Operand>* operands : {&other.inputs, &other.outputs}) {
            for (const Operand& operand : *operands) {
              if (const std::optional<Tier> found = tier(operand)) tiers.at(static_cast<std::size_t>(*found)) = true;
            }
          }
          if (std::count(tiers.begin(), tiers.end(), true) > 1 || tiers[static_cast<std::size_t>(Tier::disk)])
            report_("{}: {} works on several tiers at once", program_.name, call.label);
        });
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

  // What the program says that it reads and writes is what its instructions do.
  void check_touches() {
    if (!program_.touches) return;
    const Touches found = touches_of(plan_, class_, program_);
    const auto check = [&](const std::vector<BufferId>& said, const std::vector<BufferId>& done, std::string_view verb) {
      std::vector<BufferId> unlike;
      std::set_symmetric_difference(said.begin(), said.end(), done.begin(), done.end(), std::back_inserter(unlike));
      if (unlike.empty()) return;
      const BufferId id = unlike.front();
      if (id.index >= class_.buffers.size())
        return report_("{} says that it {} buffer {}, which there is not", program_.name, verb, id.index);
      const bool says = std::binary_search(said.begin(), said.end(), id);
      report_("{} {} {}, which it {}", program_.name, says ? fmt::format("says that it {}", verb) : std::string(verb),
              class_.buffers[id].name, says ? "does not" : "does not say");
    };
    check(program_.touches->reads, found.reads, "reads");
    check(program_.touches->writes, found.writes, "writes");
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
      for (std::uint32_t id = 0; id < class_.buffers.size(); ++id) {
        const Buffer& buffer = class_.buffers[BufferId{id}];
        if (static_cast<std::size_t>(buffer.tier) != tier || (!buffer.persistent() && buffer.program != index_)) continue;
        const bool always = buffer.persistent();
        extents.push_back(
            {id, buffer.offset.count, (buffer.offset + buffer.bytes).count, always ? 0 : buffer.first, always ? kForever : buffer.last});
      }
      check_overlap(
          std::move(extents), fmt::format("{}, {}", program_.name, kTiers > tier ? name_of(static_cast<Tier>(tier)) : "?"),
          [&](std::uint32_t id) { return class_.buffers[BufferId{id}].name.text(); }, report_);
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
  for (const auto& [id, part] : rank_class.parts) {
    const Buffer& buffer = rank_class.buffers[id];
    if (part.shard > 0 && !buffer.state.goes_in_shards()) report("{} is in shards, which it says it is not", buffer.name);
  }
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    Bytes highest{0};
    for (const Buffer& buffer : rank_class.buffers) {
      if (static_cast<std::size_t>(buffer.tier) != tier) continue;
      if (buffer.bytes.count < buffer.type.bytes())
        report("{} has {} B for {}", buffer.name, buffer.bytes.count, base::to_string(buffer.type));
      const bool kept = buffer.kind == BufferKind::state || buffer.kind == BufferKind::parameter || buffer.kind == BufferKind::master;
      if (buffer.state.declared() && !(buffer.persistent() && kept)) report("{} is kept as a state, which it is not", buffer.name);
      const bool adds = buffer.state.merge == ops::State::Merge::sum || buffer.state.merge == ops::State::Merge::mean;
      if (adds && buffer.type.dtype != base::DType::f32)
        report("{} of ranks are added, but are {}", buffer.name, base::to_string(buffer.type));
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

// Of each procedure, a rank that calls it. What ranks with different degrees share depends on none of them.
std::vector<std::int32_t> callers_of(const Plan& plan) {
  std::vector<std::int32_t> callers(plan.procedures.size(), 0);
  for (const RankClass& rank_class : plan.classes) {
    for (const Program& program : rank_class.programs) {
      for (ProcedureId id : program.procedures) {
        if (id.index < callers.size()) callers[id.index] = rank_class.ranks.front();
      }
    }
  }
  return callers;
}

// Classes whose calls no class before them makes.
std::vector<const RankClass*> different_classes(const Plan& plan) {
  std::vector<const RankClass*> different;
  std::map<const void*, std::vector<const RankClass*>> by_buffers;
  for (const RankClass& rank_class : plan.classes) {
    std::vector<const RankClass*>& others = by_buffers[&rank_class.buffers.get()];
    const auto alike = [&](const RankClass* other) { return share_calls(plan, *other, rank_class); };
    if (std::any_of(others.begin(), others.end(), alike)) continue;
    others.push_back(&rank_class);
    different.push_back(&rank_class);
  }
  return different;
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
  if (const std::int64_t missing = plan.mesh.ranks() - std::ssize(ranks); missing > 0)
    report("{} of {} ranks are in no class", missing, plan.mesh.ranks());
  if (!report.found.empty()) return std::move(report.found);
  const std::vector<std::int32_t> callers = callers_of(plan);
  for (std::uint32_t id = 0; id < plan.procedures.size(); ++id)
    check_procedure(plan, plan.procedures[ProcedureId{id}], callers[id], report);
  // Classes have nothing to do with each other until they meet, and hundreds of them take seconds.
  const std::vector<const RankClass*> classes = different_classes(plan);
  std::vector<std::vector<std::string>> of_class(classes.size());
  const auto threads = std::min<std::int64_t>(std::thread::hardware_concurrency(), std::ssize(classes));
  base::in_parallel(std::max<std::int64_t>(1, threads), [&](std::int64_t thread) {
    for (auto index = static_cast<std::size_t>(thread); index < classes.size(); index += static_cast<std::size_t>(threads))
      of_class[index] = problems_of(plan, *classes[index]);
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
