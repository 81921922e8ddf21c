// The plan: what will run, in which order, at which addresses; nothing is decided after it.
//
//   procedure   straight-line instructions over slots (bound by each call) and temporaries at fixed offsets of a frame:
//               a block's forward, its backward, its update. Blocks that do the same share one.
//   program     for one rank class, streams of calls with tokens between streams: a training step, an evaluation.
//   rank class  ranks that behave alike: their buffers at static offsets in one arena per tier, and their programs.
//
// A plan is plain data: it can be printed, compared, verified, stored and drawn. Nothing is allocated inside a program.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/shape.h"
#include "base/shared.h"
#include "ops/op.h"
#include "ops/part.h"
#include "ops/state.h"
#include "plan/mesh.h"
#include "plan/name.h"

namespace plimsoll::plan {

using base::Bytes;
using base::TensorType;
using BufferId = base::Id<struct BufferTag>;
using ProcedureId = base::Id<struct ProcedureTag>;
using TokenId = base::Id<struct TokenTag>;
using EntryId = base::Id<struct EntryTag>;

using ops::Tier;
inline constexpr std::size_t kTiers = 3;

// Buffers and frames in memory start at multiples of this.
inline constexpr Bytes kAlignment{64};

// Drives want transfers to start at pages.
constexpr Bytes alignment_of(Tier tier) { return tier == Tier::disk ? Bytes{4096} : kAlignment; }

// ---- procedures

enum class Access : std::uint8_t { read, write, update };

// What a call binds: a buffer of at least this type.
struct Slot {
  std::string name;
  TensorType type{};
  Bytes bytes{};  // of the memory behind it: more than the type's where a view of it is padded
  Access access = Access::read;

  bool operator==(const Slot&) const = default;
};

// A value that lives inside one call.
struct Temporary {
  std::string name;
  TensorType type{};
  Bytes offset{};  // in the call's frame

  bool operator==(const Temporary&) const = default;
};

struct Operand {
  enum class Kind : std::uint8_t { slot, temporary } kind = Kind::slot;
  std::uint32_t index = 0;
  TensorType type{};  // how the instruction sees it
  // It starts (place on data_inner) x shard + offset into the slot. So ranks of one class can work on different parts of the
  // same buffer, and calls on one part after the other.
  Bytes shard{};
  Bytes offset{};

  bool operator==(const Operand&) const = default;
};

// Operands of which the first `bound` rows have room and the first `count` hold something. Kernels are given those.
struct LiveRows {
  Operand count{};  // i32
  std::int64_t bound = 0;
  double expected = 1.0;      // share of the bound that prices count with
  std::uint64_t inputs = 0;   // a bit for each operand that has such rows
  std::uint64_t outputs = 0;  // and for each result

  static bool has(std::uint64_t bits, std::size_t index) { return (bits >> index & 1u) != 0; }
  bool operator==(const LiveRows&) const = default;
};

struct Compute {
  ops::Op op;
  std::string kernel;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  Bytes workspace{};         // scratch the kernel may use
  Bytes workspace_offset{};  // in the call's frame
  std::optional<LiveRows> live{};

  bool operator==(const Compute&) const = default;
};

// Tensors moved together between the ranks of a mesh axis; see ops::Collective for what each kind does.
struct Collective {
  ops::Collective op;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;

  bool operator==(const Collective&) const = default;
};

// A tensor to another place of the pipe axis, or from there; micro-batches are told apart by their number (other_end).
struct Message {
  ops::Message op;
  std::vector<Operand> inputs;   // what is sent
  std::vector<Operand> outputs;  // or received

  bool operator==(const Message&) const = default;
};

// A tensor from one tier to another, or to other memory of the same one; see ops::Move. Between the device and the host's memory it
// runs on the stream host_out or host_in, between that and the disk on disk_out or disk_in; docs/memory.md says what an executor does
// for each.
struct Copy {
  ops::Move op;
  Operand from;
  Operand to;

  bool operator==(const Copy&) const = default;
};

// Rows of tables on disk, to tensors in the host's memory or back, on the streams disk_in and disk_out; see ops::MoveRows. Tables whose
// rows are moved together have adjacent buffers, which hold a record for each row: the row of the first table, of the second, and so on.
struct RowCopy {
  ops::MoveRows op;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;

  const Operand& ids() const { return inputs.front(); }
  // Of each table: its operand, and that of its rows in memory.
  const Operand& table(std::size_t index) const { return op.back ? outputs[index] : inputs[1 + index]; }
  const Operand& rows(std::size_t index) const { return op.back ? inputs[1 + index] : outputs[index]; }
  std::size_t tables() const { return static_cast<std::size_t>(op.tables); }
  bool operator==(const RowCopy&) const = default;
};

// What a row of so many tables takes on disk: whole pages.
Bytes record_bytes(const TensorType& table, std::size_t tables);
// Between the disk and the host's memory, at most: where all rows are asked for.
Bytes moved_bytes(const RowCopy& copy);

using Instruction = std::variant<Compute, Collective, Message, Copy, RowCopy>;

struct Procedure {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Temporary> temporaries;
  std::vector<Instruction> instructions;
  Bytes frame{};  // temporaries and workspaces

  bool operator==(const Procedure&) const = default;
};

// Equal but for names: one can stand for the other.
bool same_work(const Procedure& a, const Procedure& b);
// Equal but for names, kernels, and the attributes and offsets that say which part of a tensor is worked on: what calls one can call the
// other.
bool same_form(const Procedure& a, const Procedure& b);

// ---- programs

enum class StreamKind : std::uint8_t { compute, communication, send, receive, host_in, host_out, disk_in, disk_out, host_compute };

struct Call {
  EntryId entry;            // of its program's procedures
  std::int32_t moment = 0;  // its place among the calls of all streams: what lives when is counted in these
  std::int32_t micro_batch = 0;
  Name label;                      // "blocks.3.forward"
  std::vector<BufferId> bindings;  // one per slot
  BufferId frame;                  // invalid when the procedure needs none
  std::vector<TokenId> waits;      // before it starts
  TokenId signals;                 // when it has finished; invalid: nobody waits

  bool operator==(const Call&) const = default;
};

struct Stream {
  StreamKind kind = StreamKind::compute;
  std::vector<Call> calls;

  bool operator==(const Stream&) const = default;
};

// When a program runs around the training steps of a run, by their number from 1 on.
struct Cadence {
  enum class When : std::uint8_t {
    asked,   // whenever somebody asks for it by name
    first,   // before the first step of all
    before,  // before a step
    after,   // after it, when its update is made
    ahead,   // ahead of a program that reads what this one writes (plan/programs.h)
    behind,  // behind a program that writes what this one reads
  };
  static constexpr std::int64_t kWhens = 6;
  When when = When::asked;
  std::int64_t every = 1;  // only steps that this divides

  bool operator==(const Cadence&) const = default;
};

// Whether it is its turn before a step, or after it.
bool is_due(const Cadence& cadence, Cadence::When around, std::int64_t step);

// What a program reads and writes of what outlives it; ascending.
struct Touches {
  std::vector<BufferId> reads{};
  std::vector<BufferId> writes{};

  bool operator==(const Touches&) const = default;
};

struct Program {
  std::string name;  // "train", "evaluate", "infer"
  std::int32_t micro_batches = 1;
  base::Shared<std::vector<Stream>> streams;
  std::uint32_t tokens = 0;
  Cadence cadence{};
  std::optional<Touches> touches{};  // as whoever made the program says
  // What calls run, by entry. Ranks that do the same with other slices have the same streams, and procedures of their own.
  std::vector<ProcedureId> procedures{};

  // Invalid where there is no such entry.
  ProcedureId procedure_of(const Call& call) const {
    return call.entry.index < procedures.size() ? procedures[call.entry.index] : ProcedureId{};
  }
  // How entries are numbered makes no difference.
  bool operator==(const Program& other) const;
};

// ---- rank classes

// A stash is a weight as it was before an update, for micro-batches that still compute with it.
enum class BufferKind : std::uint8_t { parameter, master, state, constant, scalars, input, gradient, activation, result, frame, stash };

struct Buffer {
  Name name;
  BufferKind kind = BufferKind::activation;
  Tier tier = Tier::device;
  TensorType type{};
  Bytes bytes{};
  Bytes offset{};  // in the arena of its tier
  // Lifetime: kAlways for what every program keeps; else the program it belongs to and its first and last moment there.
  // An input is live from moment 0, a result until the last: the host writes before and reads after.
  static constexpr std::int32_t kAlways = -1;
  std::int32_t program = kAlways;
  std::int32_t first = 0;
  std::int32_t last = 0;
  ops::State state{};  // how it is kept, where it is a state that says so

  bool persistent() const { return program == kAlways; }
  bool operator==(const Buffer&) const = default;
};

struct RankClass {
  std::string name;
  std::string role{};  // ranks of another role have other programs; empty: there is one for all
  std::vector<std::int32_t> ranks;
  base::Shared<base::IdVector<BufferId, Buffer>> buffers;  // shared as the streams of programs are
  std::vector<Program> programs;
  std::array<Bytes, kTiers> arena{};      // bytes per tier, exact
  std::map<BufferId, ops::Part> parts{};  // which part of a whole tensor a buffer holds, where there is one

  ops::Part part_of(BufferId id) const {
    const auto found = parts.find(id);
    return found == parts.end() ? ops::Part{} : found->second;
  }
  bool operator==(const RankClass&) const = default;
};

struct Plan {
  std::string model;                 // one line for people
  std::string strategy;              // one line for people
  std::vector<std::string> notes{};  // more lines: what the strategy left open and was chosen here
  std::int32_t threads = 1;          // of each rank
  Mesh mesh;
  base::IdVector<ProcedureId, Procedure> procedures;
  std::vector<RankClass> classes;

  bool operator==(const Plan&) const = default;
};

using ops::name_of;
std::string_view name_of(Access access);
std::string_view name_of(StreamKind kind);
std::string_view name_of(Cadence::When when);
std::string_view name_of(BufferKind kind);

// Elements of every member's part of a tensor that is scattered, gathered or exchanged.
std::vector<std::int64_t> part_counts(const ops::Collective& op, const TensorType& given, const TensorType& made);

// How many calls all streams of the program have: moments are 0 .. this - 1.
std::int32_t moments_of(const Program& program);

// What the rank at `place` of an axis sends over it in a run of the program, by the closed forms of a ring: 2 (n-1)/n of
// an all-reduce's bytes, (n-1)/n of what a reduce-scatter or an all-to-all takes or an all-gather gives; messages count on the pipe axis.
Bytes wire_bytes(const Plan& plan, const Program& program, const ops::Axis& axis, std::int32_t place);
// The rank that a message of a micro-batch goes to, or comes from.
std::int32_t other_end(const Mesh& mesh, std::int32_t rank, const ops::Message& message, std::int32_t micro_batch);

// The ranks between which the rank's messages go, as (from, to), in order.
std::set<std::pair<std::int32_t, std::int32_t>> links_of(const Plan& plan, std::int32_t rank);

// Tells a message of a micro-batch from all others between the same places.
std::int32_t tag_of(const ops::Message& message, std::int32_t micro_batch);

const RankClass& class_of(const Plan& plan, std::int32_t rank);

// Bytes of the arena that every program keeps; what lies behind them a program has for itself while it runs.
Bytes kept_bytes(const RankClass& rank_class, Tier tier);

// Bytes that all ranks need in a tier.
Bytes arena_of_all(const Plan& plan, Tier tier);

// The class whose ranks need most memory on the device.
const RankClass& fullest_class(const Plan& plan);

const Program* find_program(const RankClass& rank_class, std::string_view name);

}  // namespace plimsoll::plan
