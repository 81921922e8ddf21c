#include "plan/file.h"

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/definition.h"
#include "plan/instructions.h"
#include "plan/mesh_file.h"
#include "plan/programs.h"
#include "plan/verify.h"

namespace plimsoll::plan {

namespace {

using base::Json;

constexpr std::int64_t kFormat = 6;

// ---- writing

Json type_json(const TensorType& type) { return Json(base::to_string(type)); }

template <typename T>
Json list_json(const std::vector<T>& items, const std::function<Json(const T&)>& one) {
  Json::Array list;
  for (const T& item : items) list.push_back(one(item));
  return Json(std::move(list));
}

template <typename IdType>
Json id_json(IdType id) {
  return id.valid() ? Json(static_cast<std::int64_t>(id.index)) : Json();
}

Json operand_json(const Operand& operand) {
  Json::Array list{operand.kind == Operand::Kind::slot ? "slot" : "temporary", static_cast<std::int64_t>(operand.index),
                   type_json(operand.type)};
  if (operand.shard + operand.offset != Bytes{}) {
    list.emplace_back(operand.shard.count);
    list.emplace_back(operand.offset.count);
  }
  return Json(std::move(list));
}

Json live_json(const LiveRows& live) {
  return Json::object({{"count", operand_json(live.count)},
                       {"bound", live.bound},
                       {"expected", live.expected},
                       {"inputs", static_cast<std::int64_t>(live.inputs)},
                       {"outputs", static_cast<std::int64_t>(live.outputs)}});
}

Json instruction_json(const Instruction& instruction) {
  return match(
      instruction,
      [](const Copy& copy) {
        return Json::object({{"op", ops::to_string(copy.op)}, {"from", operand_json(copy.from)}, {"to", operand_json(copy.to)}});
      },
      [](const Compute& compute) {
        Json json = Json::object({{"op", ops::to_string(compute.op)},
                                  {"kernel", compute.kernel},
                                  {"inputs", list_json<Operand>(compute.inputs, operand_json)},
                                  {"outputs", list_json<Operand>(compute.outputs, operand_json)},
                                  {"workspace", compute.workspace.count},
                                  {"workspace_offset", compute.workspace_offset.count}});
        if (compute.live) json.set("live", live_json(*compute.live));
        return json;
      },
      [](const auto& moved) {
        return Json::object({{"op", ops::to_string(moved.op)},
                             {"inputs", list_json<Operand>(moved.inputs, operand_json)},
                             {"outputs", list_json<Operand>(moved.outputs, operand_json)}});
      });
}

Json procedure_json(const Procedure& procedure) {
  return Json::object({{"name", procedure.name},
                       {"frame", procedure.frame.count},
                       {"slots", list_json<Slot>(procedure.slots,
                                                 [](const Slot& slot) {
                                                   return Json::object({{"name", slot.name},
                                                                        {"type", type_json(slot.type)},
                                                                        {"bytes", slot.bytes.count},
                                                                        {"access", name_of(slot.access)}});
                                                 })},
                       {"temporaries", list_json<Temporary>(procedure.temporaries,
                                                            [](const Temporary& temporary) {
                                                              return Json::object({{"name", temporary.name},
                                                                                   {"type", type_json(temporary.type)},
                                                                                   {"offset", temporary.offset.count}});
                                                            })},
                       {"instructions", list_json<Instruction>(procedure.instructions, instruction_json)}});
}

Json call_json(const Call& call, ProcedureId procedure) {
  return Json::object({{"procedure", id_json(procedure)},
                       {"moment", call.moment},
                       {"micro_batch", call.micro_batch},
                       {"label", call.label.text()},
                       {"bindings", list_json<BufferId>(call.bindings, [](const BufferId& id) { return id_json(id); })},
                       {"frame", id_json(call.frame)},
                       {"waits", list_json<TokenId>(call.waits, [](const TokenId& id) { return id_json(id); })},
                       {"signals", id_json(call.signals)}});
}

Json shape_json(const base::Shape& shape) {
  Json::Array dims;
  for (std::int64_t extent : shape.dims()) dims.push_back(Json(extent));
  return Json(std::move(dims));
}

Json part_json(const ops::Part& part) {
  if (part == ops::Part{}) return Json();
  return Json::object({{"whole", shape_json(part.whole)},
                       {"dim", part.dim},
                       {"begin", part.begin},
                       {"slice", shape_json(part.slice)},
                       {"first", part.first},
                       {"tile", part.tile},
                       {"shard", part.shard},
                       {"tail", part.tail},
                       {"tail_begin", part.tail_begin}});
}

Json state_json(const ops::State& state) {
  return Json::object({{"cut", ops::name_of(state.cut)},
                       {"merge", ops::name_of(state.merge)},
                       {"written", ops::name_of(state.written)},
                       {"start", static_cast<double>(state.start)}});
}

Json buffer_json(const Buffer& buffer, const ops::Part& part) {
  Json json = Json::object({{"name", buffer.name.text()},
                            {"kind", name_of(buffer.kind)},
                            {"tier", name_of(buffer.tier)},
                            {"type", type_json(buffer.type)},
                            {"bytes", buffer.bytes.count},
                            {"offset", buffer.offset.count},
                            {"program", buffer.program},
                            {"first", buffer.first},
                            {"last", buffer.last},
                            {"part", part_json(part)}});
  if (buffer.state.declared()) json.set("state", state_json(buffer.state));
  return json;
}

// ---- text
// Of a large plan a tree of everything takes ten times the memory of its text, beside a run's arenas: lists are written item by item.

// An object that goes on: what follows it closes it.
std::string open_object(const Json& fields) {
  std::string text = base::write_json(fields);
  text.pop_back();
  return text;
}

template <typename Items, typename Write>
void append_list(std::string& text, std::string_view name, const Items& items, const Write& write) {
  text += fmt::format(",\"{}\":[", name);
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) text += ',';
    write(item);
  }
  text += ']';
}

Json touches_json(const std::vector<BufferId>& ids) {
  return list_json<BufferId>(ids, [](const BufferId& id) { return id_json(id); });
}

// What a program says that it touches is there only where its instructions do something else.
void append(std::string& text, const Plan& plan, const RankClass& rank_class, const Program& program) {
  Json fields = Json::object({{"name", program.name}, {"micro_batches", program.micro_batches}, {"tokens", program.tokens}});
  if (program.cadence != Cadence{})
    fields.set("cadence", Json::object({{"when", name_of(program.cadence.when)}, {"every", program.cadence.every}}));
  if (program.touches && *program.touches != touches_of(plan, rank_class, program)) {
    fields.set("reads", touches_json(program.touches->reads));
    fields.set("writes", touches_json(program.touches->writes));
  }
  text += open_object(fields);
  append_list(text, "streams", program.streams, [&](const Stream& stream) {
    text += open_object(Json::object({{"kind", name_of(stream.kind)}}));
    append_list(text, "calls", stream.calls,
                [&](const Call& call) { text += base::write_json(call_json(call, program.procedure_of(call))); });
    text += '}';
  });
  text += '}';
}

void append(std::string& text, const Plan& plan, const RankClass& rank_class) {
  Json::Array arenas;
  for (Bytes bytes : rank_class.arena) arenas.push_back(Json(bytes.count));
  Json fields = Json::object({{"name", rank_class.name},
                              {"ranks", list_json<std::int32_t>(rank_class.ranks, [](const std::int32_t& rank) { return Json(rank); })},
                              {"arena", Json(std::move(arenas))}});
  if (!rank_class.role.empty()) fields.set("role", rank_class.role);
  text += open_object(fields);
  BufferId id{0};
  append_list(text, "buffers", rank_class.buffers, [&](const Buffer& buffer) {
    text += base::write_json(buffer_json(buffer, rank_class.part_of(id)));
    ++id.index;
  });
  append_list(text, "programs", rank_class.programs, [&](const Program& program) { append(text, plan, rank_class, program); });
  text += '}';
}

// ---- reading

template <typename T>
std::vector<T> list_from(const Json& json, const std::function<T(const Json&)>& one) {
  std::vector<T> items;
  for (const Json& item : json.as_array()) items.push_back(one(item));
  return items;
}

std::int64_t count_from(const Json& json) {
  const std::int64_t value = json.as_integer();
  // Sums of a few of these must stay representable.
  if (value < 0 || value > (std::int64_t{1} << 56)) json.fail_expected("0 to 2^56");
  return value;
}

Bytes bytes_from(const Json& json) { return Bytes{count_from(json)}; }

std::int32_t small_from(const Json& json) {
  const std::int64_t value = json.as_integer();
  if (value < -1 || value > 0x7FFFFFFF) json.fail_expected("a number of 31 bits");
  return static_cast<std::int32_t>(value);
}

template <typename IdType>
IdType id_from(const Json& json) {
  if (json.is_null()) return {};
  const std::int64_t value = count_from(json);
  if (value >= IdType::kNone) json.fail_expected("an index");
  return {static_cast<std::uint32_t>(value)};
}

TensorType type_from(const Json& json) {
  const std::string& text = json.as_string();
  const std::size_t open = text.find('[');
  const std::optional<base::DType> dtype = base::dtype_from_name(std::string_view(text).substr(0, open));
  if (!dtype || open == std::string::npos || text.back() != ']') json.fail_expected("a tensor type such as f32[4, 8]");
  std::vector<std::int64_t> dims;
  std::size_t next = open + 1;
  while (next + 1 < text.size()) {
    std::int64_t extent = 0;
    const auto [end, status] = std::from_chars(text.data() + next, text.data() + text.size(), extent);
    if (status != std::errc{} || extent < 0 || dims.size() == base::Shape::kMaxDims) json.fail_expected("a tensor type such as f32[4, 8]");
    dims.push_back(extent);
    next = static_cast<std::size_t>(end - text.data());
    if (text.compare(next, 2, ", ") == 0) next += 2;
  }
  // The product must be representable before anything multiplies it.
  double elements = 1.0;
  for (std::int64_t extent : dims) elements *= static_cast<double>(extent);
  if (elements > 1e17) json.fail_expected("a tensor of at most 1e17 elements");
  return {*dtype, base::Shape(std::span<const std::int64_t>(dims))};
}

template <typename Enum>
Enum enum_from(const Json& json, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    if (name_of(static_cast<Enum>(index)) == json.as_string()) return static_cast<Enum>(index);
  }
  json.fail_expected("one of the known names");
}

Operand operand_from(const Json& json) {
  const std::string& kind = json.at(std::size_t{0}).as_string();
  if (kind != "slot" && kind != "temporary") json.fail_expected("\"slot\" or \"temporary\"");
  Operand operand{kind == "temporary" ? Operand::Kind::temporary : Operand::Kind::slot,
                  static_cast<std::uint32_t>(small_from(json.at(std::size_t{1}))), type_from(json.at(std::size_t{2}))};
  if (json.as_array().size() == 3) return operand;
  operand.shard = bytes_from(json.at(std::size_t{3}));
  operand.offset = bytes_from(json.at(std::size_t{4}));
  return operand;
}

std::optional<LiveRows> live_from(const Json* json) {
  if (json == nullptr) return std::nullopt;
  return LiveRows{.count = operand_from(json->at("count")),
                  .bound = json->at("bound").as_integer(),
                  .expected = json->at("expected").as_double(),
                  .inputs = static_cast<std::uint64_t>(json->at("inputs").as_integer()),
                  .outputs = static_cast<std::uint64_t>(json->at("outputs").as_integer())};
}

// What the operator says of its operands; types and addresses are the verifier's.
void expect_operands(const Collective& moved, const Json& json) {
  const auto tensors = static_cast<std::size_t>(moved.op.tensors);
  if (moved.inputs.size() != tensors || moved.outputs.size() != tensors) json.fail_expected("as many operands as \"tensors\" says");
}

void expect_operands(const Message& moved, const Json& json) {
  if (moved.inputs.size() != (moved.op.receive ? 0u : 1u) || moved.outputs.size() != (moved.op.receive ? 1u : 0u))
    json.fail_expected("one operand");
}

void expect_operands(const RowCopy& moved, const Json& json) {
  const std::size_t tables = moved.outputs.size();
  if (moved.op.tables < 1 || tables != static_cast<std::size_t>(moved.op.tables) ||
      moved.inputs.size() != 1 + tables * (moved.op.back ? 2 : 1))
    json.fail_expected("ids, and as many operands as \"tables\" says");
}

Instruction instruction_from(const Json& json) {
  const ops::Op op = ops::parse_op(json.at("op").as_string());
  if (ops::is_view(op)) json.at("op").fail_expected("an operator that runs");
  if (ops::is_copy(op)) return instruction_for(op, {operand_from(json.at("from"))}, {operand_from(json.at("to"))});
  Instruction instruction =
      instruction_for(op, list_from<Operand>(json.at("inputs"), operand_from), list_from<Operand>(json.at("outputs"), operand_from));
  std::visit(base::Overloads{[&](Compute& compute) {
                               compute.kernel = json.at("kernel").as_string();
                               compute.workspace = bytes_from(json.at("workspace"));
                               compute.workspace_offset = bytes_from(json.at("workspace_offset"));
                               compute.live = live_from(json.find("live"));
                             },
                             [](Copy&) {}, [&](const auto& moved) { expect_operands(moved, json); }},
             instruction);
  return instruction;
}

Procedure procedure_from(const Json& json) {
  return {.name = json.at("name").as_string(),
          .slots = list_from<Slot>(json.at("slots"),
                                   [](const Json& slot) {
                                     return Slot{slot.at("name").as_string(), type_from(slot.at("type")), bytes_from(slot.at("bytes")),
                                                 enum_from<Access>(slot.at("access"), 3)};
                                   }),
          .temporaries = list_from<Temporary>(json.at("temporaries"),
                                              [](const Json& temporary) {
                                                return Temporary{temporary.at("name").as_string(), type_from(temporary.at("type")),
                                                                 bytes_from(temporary.at("offset"))};
                                              }),
          .instructions = list_from<Instruction>(json.at("instructions"), instruction_from),
          .frame = bytes_from(json.at("frame"))};
}

Call call_from(const Json& json, EntryId entry) {
  return {.entry = entry,
          .moment = small_from(json.at("moment")),
          .micro_batch = small_from(json.at("micro_batch")),
          .label = json.at("label").as_string(),
          .bindings = list_from<BufferId>(json.at("bindings"), id_from<BufferId>),
          .frame = id_from<BufferId>(json.at("frame")),
          .waits = list_from<TokenId>(json.at("waits"), id_from<TokenId>),
          .signals = id_from<TokenId>(json.at("signals"))};
}

Cadence cadence_from(const Json* json) {
  if (json == nullptr) return {};
  const Cadence cadence{.when = enum_from<Cadence::When>(json->at("when"), Cadence::kWhens), .every = count_from(json->at("every"))};
  if (cadence.every < 1) json->at("every").fail_expected("1 or more");
  return cadence;
}

Program program_from(const Json& json) {
  Program program{.name = json.at("name").as_string(),
                  .micro_batches = small_from(json.at("micro_batches")),
                  .streams = {},
                  .tokens = static_cast<std::uint32_t>(small_from(json.at("tokens"))),
                  .cadence = cadence_from(json.find("cadence"))};
  if (const Json* reads = json.find("reads"))
    program.touches = {list_from<BufferId>(*reads, id_from<BufferId>), list_from<BufferId>(json.at("writes"), id_from<BufferId>)};
  std::map<ProcedureId, EntryId> entries;
  const auto entered_call = [&](const Json& call) {
    const auto procedure = id_from<ProcedureId>(call.at("procedure"));
    const auto [found, fresh] = entries.try_emplace(procedure, EntryId{static_cast<std::uint32_t>(entries.size())});
    if (fresh) program.procedures.push_back(procedure);
    return call_from(call, found->second);
  };
  program.streams = list_from<Stream>(json.at("streams"), [&](const Json& stream) {
    return Stream{enum_from<StreamKind>(stream.at("kind"), 9), list_from<Call>(stream.at("calls"), entered_call)};
  });
  return program;
}

base::Shape shape_from(const Json& json) {
  std::vector<std::int64_t> dims = list_from<std::int64_t>(json, count_from);
  double elements = 1.0;
  for (std::int64_t extent : dims) elements *= static_cast<double>(extent);
  if (dims.size() > base::Shape::kMaxDims || elements > 1e17) json.fail_expected("extents of a tensor");
  return base::Shape(std::span<const std::int64_t>(dims));
}

ops::Part part_from(const Json& json) {
  if (json.is_null()) return {};
  return {.whole = shape_from(json.at("whole")),
          .dim = small_from(json.at("dim")),
          .begin = count_from(json.at("begin")),
          .slice = shape_from(json.at("slice")),
          .tail = count_from(json.at("tail")),
          .tail_begin = count_from(json.at("tail_begin")),
          .first = count_from(json.at("first")),
          .tile = count_from(json.at("tile")),
          .shard = count_from(json.at("shard"))};
}

ops::State state_from(const Json* json) {
  if (json == nullptr) return {};
  return {.cut = enum_from<ops::State::Cut>(json->at("cut"), ops::kStateCuts),
          .merge = enum_from<ops::State::Merge>(json->at("merge"), ops::kStateMerges),
          .written = enum_from<ops::State::Written>(json->at("written"), ops::kStateWriters),
          .start = static_cast<float>(json->at("start").as_double())};
}

Buffer buffer_from(const Json& json) {
  return {.name = json.at("name").as_string(),
          .kind = enum_from<BufferKind>(json.at("kind"), 11),
          .tier = enum_from<Tier>(json.at("tier"), kTiers),
          .type = type_from(json.at("type")),
          .bytes = bytes_from(json.at("bytes")),
          .offset = bytes_from(json.at("offset")),
          .program = small_from(json.at("program")),
          .first = small_from(json.at("first")),
          .last = small_from(json.at("last")),
          .state = state_from(json.find("state"))};
}

RankClass class_from(const Json& json) {
  RankClass rank_class;
  rank_class.name = json.at("name").as_string();
  if (const Json* role = json.find("role")) rank_class.role = role->as_string();
  rank_class.ranks = list_from<std::int32_t>(json.at("ranks"), small_from);
  for (std::size_t tier = 0; tier < kTiers; ++tier) rank_class.arena[tier] = bytes_from(json.at("arena").at(tier));
  for (const Json& buffer : json.at("buffers").as_array()) {
    const BufferId id = rank_class.buffers.edit().add(buffer_from(buffer));
    if (const ops::Part part = part_from(buffer.at("part")); part != ops::Part{}) rank_class.parts.emplace(id, part);
  }
  rank_class.programs = list_from<Program>(json.at("programs"), program_from);
  for (const Buffer& buffer : rank_class.buffers.get()) {
    const bool known = buffer.persistent() || static_cast<std::size_t>(buffer.program) < rank_class.programs.size();
    if (!known) json.fail_expected("buffers of programs that exist");
  }
  return rank_class;
}

void say_touches(Plan& plan) {
  for (RankClass& rank_class : plan.classes) {
    for (Program& program : rank_class.programs) {
      if (!program.touches) program.touches = touches_of(plan, rank_class, program);
    }
  }
}

}  // namespace

std::string to_text(const Plan& plan) {
  Json fields = Json::object({{"plimsoll_plan", kFormat},
                              {"model", plan.model},
                              {"strategy", plan.strategy},
                              {"notes", list_json<std::string>(plan.notes, [](const std::string& note) { return Json(note); })},
                              {"threads", plan.threads}});
  put_mesh(fields, plan.mesh);
  std::string text = open_object(fields);
  append_list(text, "procedures", plan.procedures,
              [&](const Procedure& procedure) { text += base::write_json(procedure_json(procedure)); });
  append_list(text, "classes", plan.classes, [&](const RankClass& rank_class) { append(text, plan, rank_class); });
  return text + "}";
}

Json to_json(const Plan& plan) { return base::parse_json(to_text(plan), "plan"); }

Plan plan_from_json(const Json& json) {
  const std::int64_t format = json.at("plimsoll_plan").as_integer();
  if (format != kFormat)
    base::bad_input("{}: found a plan of format {}, expected format {}; plan the run again", json.where(), format, kFormat);
  Plan plan;
  plan.model = json.at("model").as_string();
  plan.strategy = json.at("strategy").as_string();
  plan.notes = list_from<std::string>(json.at("notes"), [](const Json& note) { return note.as_string(); });
  plan.threads = small_from(json.at("threads"));
  plan.mesh = mesh_from(json);
  for (const Json& procedure : json.at("procedures").as_array()) plan.procedures.add(procedure_from(procedure));
  plan.classes = list_from<RankClass>(json.at("classes"), class_from);
  const std::vector<std::string> found = problems(plan);
  if (found.empty()) say_touches(plan);
  if (!found.empty()) base::bad_input("{}: this plan must not run: {} ({} problems in all)", json.where(), found.front(), found.size());
  return plan;
}

}  // namespace plimsoll::plan
