#include "plan/plan.h"

#include <algorithm>

#include "base/error.h"
#include "ops/placement.h"
#include "plan/instructions.h"
#include "plan/traffic.h"

namespace plimsoll::plan {

namespace {

template <typename T, typename SameButName>
bool same_lists(const std::vector<T>& a, const std::vector<T>& b, SameButName same) {
  if (a.size() != b.size()) return false;
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (!same(a[index], b[index])) return false;
  }
  return true;
}

constexpr std::array<std::string_view, 3> kAccessNames{"read", "write", "update"};
constexpr std::array<std::string_view, 9> kStreamNames{"compute",  "communication", "send",     "receive",     "host-in",
                                                       "host-out", "disk-in",       "disk-out", "host-compute"};
constexpr std::array<std::string_view, 11> kBufferNames{"parameter", "master",     "state",  "constant", "scalars", "input",
                                                        "gradient",  "activation", "result", "frame",    "stash"};

}  // namespace

bool same_work(const Procedure& a, const Procedure& b) {
  return a.frame == b.frame && a.instructions == b.instructions &&
         same_lists(a.slots, b.slots,
                    [](const Slot& x, const Slot& y) { return x.type == y.type && x.bytes == y.bytes && x.access == y.access; }) &&
         same_lists(a.temporaries, b.temporaries,
                    [](const Temporary& x, const Temporary& y) { return x.type == y.type && x.offset == y.offset; });
}

bool same_form(const Procedure& a, const Procedure& b) {
  const auto same_operand = [](const Operand& x, const Operand& y) { return x.kind == y.kind && x.index == y.index && x.type == y.type; };
  const auto same_instruction = [&](const Instruction& x, const Instruction& y) {
    if (x.index() != y.index()) return false;
    return std::visit(
        [&](const auto& one) {
          using Kind = std::decay_t<decltype(one)>;
          const auto& other = std::get<Kind>(y);
          if constexpr (std::is_same_v<Kind, Copy>) {
            return one.op == other.op && same_operand(one.from, other.from) && same_operand(one.to, other.to);
          } else {
            const bool lists = same_lists(one.inputs, other.inputs, same_operand) && same_lists(one.outputs, other.outputs, same_operand);
            if constexpr (std::is_same_v<Kind, Compute>) {
              return lists && one.op.index() == other.op.index() && one.live == other.live;
            } else {
              return lists;
            }
          }
        },
        x);
  };
  return a.frame == b.frame && same_lists(a.instructions, b.instructions, same_instruction) &&
         same_lists(a.slots, b.slots,
                    [](const Slot& x, const Slot& y) { return x.type == y.type && x.bytes == y.bytes && x.access == y.access; });
}

bool Program::operator==(const Program& other) const {
  const auto same_call = [&](const Call& one, const Call& two) {
    Call renamed = two;
    renamed.entry = one.entry;
    return procedure_of(one) == other.procedure_of(two) && one == renamed;
  };
  return name == other.name && micro_batches == other.micro_batches && tokens == other.tokens && cadence == other.cadence &&
         touches == other.touches && same_lists(streams.get(), other.streams.get(), [&](const Stream& x, const Stream& y) {
           return x.kind == y.kind && same_lists(x.calls, y.calls, same_call);
         });
}

std::int32_t other_end(const Mesh& mesh, std::int32_t rank, const ops::Message& message, std::int32_t micro_batch) {
  const auto there = static_cast<std::int32_t>(message.peer);
  if (mesh.even()) return rank + (there - mesh.place(ops::Axis::pipe, rank)) * mesh.stride(ops::Axis::pipe, rank);
  const std::int32_t data = micro_batch % mesh.extent_at(ops::Axis::data, there);
  return mesh.first_rank(there) + data * mesh.extent_at(ops::Axis::tensor, there) + static_cast<std::int32_t>(message.seat);
}

std::vector<std::int64_t> part_counts(const ops::Collective& op, const TensorType& given, const TensorType& made) {
  const std::int64_t smaller = std::min(given.shape.elements(), made.shape.elements());
  const bool exchanges = op.kind == ops::CollectiveKind::all_to_all;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(op.members), exchanges ? smaller / op.members : smaller);
  for (std::int64_t member = 0; member < op.members && op.rows > 0; ++member)
    counts[static_cast<std::size_t>(member)] = ops::Seat{.members = op.members, .place = member}.units_here(op.rows) * given.shape[-1];
  return counts;
}

std::int32_t moments_of(const Program& program) {
  std::size_t calls = 0;
  for (const Stream& stream : program.streams) calls += stream.calls.size();
  return static_cast<std::int32_t>(calls);
}

Bytes wire_bytes(const Plan& plan, const Program& program, const ops::Axis& axis, std::int32_t place) {
  Bytes sum{0};
  match_all(
      plan, program,
      [&](const Call&, const Message& message) {
        if (axis == ops::Axis::pipe) sum.count += sent_bytes(message);
      },
      [&](const Call&, const Collective& collective) {
        if (collective.op.axis == axis) sum.count += sent_bytes(collective, place);
      },
      kIgnoreOthers);
  return sum;
}

std::set<std::pair<std::int32_t, std::int32_t>> links_of(const Plan& plan, std::int32_t rank) {
  std::set<std::pair<std::int32_t, std::int32_t>> links;
  std::set<std::pair<ProcedureId, std::int32_t>> seen;  // micro-batches are alike where all places are
  for (const Program& program : class_of(plan, rank).programs) {
    for (const Stream& stream : program.streams) {
      for (const Call& call : stream.calls) {
        if (!seen.insert({program.procedure_of(call), plan.mesh.even() ? 0 : call.micro_batch}).second) continue;
        for (const Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions) {
          match(
              instruction,
              [&](const Message& message) {
                const std::int32_t other = other_end(plan.mesh, rank, message.op, call.micro_batch);
                links.insert(message.op.receive ? std::pair(other, rank) : std::pair(rank, other));
              },
              kIgnoreOthers);
        }
      }
    }
  }
  return links;
}

std::int32_t tag_of(const ops::Message& message, std::int32_t micro_batch) {
  // Values are few thousand, micro-batches too; what is left of a product that is too large still tells neighbours apart.
  return static_cast<std::int32_t>((message.tag * 65'536 + micro_batch) & 0x3FFFFFFF);
}

Bytes record_bytes(const TensorType& table, std::size_t tables) {
  const std::int64_t row = table.shape[1] * base::size_of(table.dtype);
  return base::round_up(Bytes{row * static_cast<std::int64_t>(tables)}, alignment_of(Tier::disk));
}

Bytes moved_bytes(const RowCopy& copy) { return record_bytes(copy.table(0).type, copy.tables()) * copy.ids().type.shape.elements(); }

std::string_view name_of(Cadence::When when) {
  switch (when) {
    case Cadence::When::asked: return "asked";
    case Cadence::When::first: return "first";
    case Cadence::When::before: return "before";
    case Cadence::When::after: return "after";
    case Cadence::When::ahead: return "ahead";
    case Cadence::When::behind: return "behind";
  }
  PLIMSOLL_CHECK(false, "a cadence that has no name");
}

bool is_due(const Cadence& cadence, Cadence::When around, std::int64_t step) {
  if (cadence.when == Cadence::When::first) return around == Cadence::When::before && step == 1;
  return cadence.when == around && step % cadence.every == 0;
}

Bytes kept_bytes(const RankClass& rank_class, Tier tier) {
  Bytes kept{0};
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.persistent() && buffer.tier == tier) kept = std::max(kept, buffer.offset + base::round_up(buffer.bytes, alignment_of(tier)));
  }
  return kept;
}

Bytes arena_of_all(const Plan& plan, Tier tier) {
  Bytes sum{0};
  for (const RankClass& rank_class : plan.classes)
    sum += rank_class.arena[static_cast<std::size_t>(tier)] * static_cast<std::int64_t>(rank_class.ranks.size());
  return sum;
}

const RankClass& fullest_class(const Plan& plan) {
  constexpr auto kDevice = static_cast<std::size_t>(Tier::device);
  return *std::max_element(plan.classes.begin(), plan.classes.end(),
                           [](const RankClass& a, const RankClass& b) { return a.arena[kDevice] < b.arena[kDevice]; });
}

const RankClass& class_of(const Plan& plan, std::int32_t rank) {
  for (const RankClass& candidate : plan.classes) {
    if (std::find(candidate.ranks.begin(), candidate.ranks.end(), rank) != candidate.ranks.end()) return candidate;
  }
  PLIMSOLL_CHECK(false, "rank {} is in no class of the plan", rank);
}

std::string_view name_of(Access access) { return kAccessNames.at(static_cast<std::size_t>(access)); }
std::string_view name_of(StreamKind kind) { return kStreamNames.at(static_cast<std::size_t>(kind)); }
std::string_view name_of(BufferKind kind) { return kBufferNames.at(static_cast<std::size_t>(kind)); }

const Program* find_program(const RankClass& rank_class, std::string_view name) {
  for (const Program& program : rank_class.programs) {
    if (program.name == name) return &program;
  }
  return nullptr;
}

}  // namespace plimsoll::plan
