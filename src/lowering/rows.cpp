#include "lowering/rows.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "lowering/passes/offload.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::Role;
using graph::Value;
using graph::ValueId;
using ops::Tier;

// What the disk tier reads and writes at once.
constexpr base::Bytes kLargestRecord{std::int64_t{1} << 20};

// The token table of a graph.
struct Found {
  ValueId tokens;
  std::size_t parameter = 0;
};

[[noreturn]] void refuse(std::string_view why) {
  base::not_legal("\"embedding_rows\" is \"disk\", but {}; use \"embedding_rows\": \"whole\"", why);
}

std::size_t parameter_at(const Graph& graph, ValueId weight) {
  for (std::size_t index = 0; index < graph.parameters.size(); ++index) {
    if (graph.parameters[index].weight == weight) return index;
  }
  refuse("what looks up tokens is no weight of the model");
}

std::optional<Found> find_table(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!std::holds_alternative<ops::Embed>(node.op)) continue;
    for (std::size_t input = 0; input < node.inputs.size(); input += 2) {
      const Value& ids = graph.values[node.inputs[input]];
      if (ids.role == Role::input && ids.name == kTokens) return Found{node.inputs[input], parameter_at(graph, node.inputs[input + 1])};
    }
  }
  return std::nullopt;
}

// Nobody else may need rows that are not there, or ids as they were.
void require_lookups_only(const Graph& graph, const Found& found) {
  const graph::Parameter& parameter = graph.parameters[found.parameter];
  if (parameter.frozen) refuse(fmt::format("{} is frozen, and rows are brought to be trained", parameter.name));
  for (const Node& node : graph.nodes) {
    const bool looks_up = std::holds_alternative<ops::Embed>(node.op);
    for (std::size_t input = 0; input < node.inputs.size(); ++input) {
      const ValueId id = node.inputs[input];
      if (const auto* prelude = ops::prelude_in(node.op); prelude != nullptr && id == parameter.master)
        base::not_legal(
            "\"embedding_rows\" is \"disk\", where a step has a few rows of {}, but \"{}\" looks at all of it before it updates; use "
            "another "
            "\"optimizer.type\", or \"embedding_rows\": \"whole\"",
            parameter.name, prelude->update.rule->name);
      if (id == parameter.weight && !is_update(node.op) && !(looks_up && node.inputs[input - 1] == found.tokens))
        base::not_legal(
            "\"embedding_rows\" is \"disk\", but [{}] needs all of {}, which the model's head shares; use \"model.tied\": false, or "
            "\"embedding_rows\": \"whole\" with a \"tile\"",
            ops::name_of(node.op), parameter.name);
      if (id != found.tokens) continue;
      if (const auto* shift = std::get_if<ops::ShiftIds>(&node.op); shift != nullptr && shift->hidden >= 0)
        base::not_legal(
            "\"embedding_rows\" is \"disk\", where ids have other numbers in every step, but lookups of token {} train nothing; use "
            "\"model.pad_token\": -1, or \"embedding_rows\": \"whole\"",
            shift->hidden);
      const bool numbered = looks_up ? node.inputs[input + 1] == parameter.weight
                                     : std::holds_alternative<ops::EmbedGrad>(node.op) && node.outputs[0] == parameter.gradient;
      if (!numbered) refuse(fmt::format("[{}] reads the ids of tokens for something else", ops::name_of(node.op)));
    }
  }
}

std::string name_here(const graph::Parameter& parameter, const std::string& name) {
  return parameter.name + ".rows" + name.substr(parameter.name.size());
}

std::vector<ValueId> roots_of(const graph::Parameter& parameter) {
  std::vector<ValueId> roots{parameter.weight};
  if (parameter.master.valid() && parameter.master != parameter.weight) roots.push_back(parameter.master);
  roots.insert(roots.end(), parameter.states.begin(), parameter.states.end());
  return roots;
}

// The same graph with a table of `room` rows.
Graph with_small_table(Graph graph, const Found& found, std::int64_t room) {
  graph::Parameter& parameter = graph.parameters[found.parameter];
  for (ValueId id : roots_of(parameter)) {
    Value& root = graph.values[id];
    root.name = name_here(parameter, root.name);
    root.type.shape = {room, root.type.shape[1]};
    root.deal = {};  // tensor ranks all have the rows
  }
  parameter.name += ".rows";
  parameter.rows_of_table = true;
  for (Node& node : graph.nodes) {
    auto* grad = std::get_if<ops::EmbedGrad>(&node.op);
    if (grad != nullptr && node.inputs[0] == found.tokens) grad->rows = room;
    const std::vector<base::TensorType> types = ops::definition_of(node.op).infer(node.op, graph.types(node.inputs));
    for (std::size_t output = 0; output < node.outputs.size(); ++output) graph.values[node.outputs[output]].type = types[output];
  }
  graph::verify(graph, kEmbeddingRows);
  return graph;
}

RowTable table_of(const Graph& graph, const Found& found, std::int64_t room) {
  const graph::Parameter& parameter = graph.parameters[found.parameter];
  const auto tensor = [&](ValueId id) {
    const Value& root = graph.values[id];
    return RowTable::Tensor{root.name, root.role, name_here(parameter, root.name)};
  };
  RowTable table{.tensors = {tensor(parameter.master)},
                 .weight = name_here(parameter, graph.values[parameter.weight].name),
                 .block = graph.blocks[graph.values[parameter.weight].block].name,
                 .whole = graph.values[parameter.master].type,
                 .room = room};
  for (ValueId state : parameter.states) {
    table.tensors.push_back(tensor(state));
    const base::DType dtype = graph.values[state].type.dtype;
    if (dtype != table.whole.dtype)
      base::not_legal(
          "\"embedding_rows\" is \"disk\", where a row and its optimizer state are of one type, but {} is {} and {} is {}; use "
          "\"optimizer.master\" and \"optimizer.moments\" \"f32\", or \"none\" and \"bf16\"",
          graph.values[parameter.master].name, base::name_of(table.whole.dtype), graph.values[state].name, base::name_of(dtype));
  }
  const base::Bytes record = plan::record_bytes(table.whole, table.tensors.size());
  if (record > kLargestRecord)
    refuse(fmt::format("a row of {} with its moments takes {} there, more than the {} that are read at once", parameter.name,
                       base::to_string(record), base::to_string(kLargestRecord)));
  return table;
}

// ---- the programs

class RowGraph {
 public:
  RowGraph(const RowTable& table, const FindBuffer& find) : table_(table), find_(find), block_(graph_.blocks.add({.name = table.block})) {
    ids_ = graph_.add_value({.name = std::string(kRowIds),
                             .type = {base::DType::i32, base::Shape{table.room}},
                             .role = Role::constant,
                             .block = block_,
                             .tier = Tier::host});
    for (const RowTable::Tensor& tensor : table.tensors)
      tables_.push_back(
          graph_.add_value({.name = tensor.on_disk, .type = table.whole, .role = tensor.role, .block = block_, .tier = Tier::disk}));
  }

  Graph fetch() {
    std::vector<ValueId> inputs{ids_};
    inputs.insert(inputs.end(), tables_.begin(), tables_.end());
    const auto count = static_cast<std::int64_t>(tables_.size());
    const std::vector<ValueId> rows = add(ops::MoveRows{.tables = count}, inputs, "rows.near");
    for (std::size_t index = 0; index < rows.size(); ++index) put(rows[index], root(table_.tensors[index].here));
    if (table_.weight != table_.tensors[0].here) {
      const ValueId weight = root(table_.weight);
      ValueId near = rows[0];
      if (graph_.values[weight].type.dtype != graph_.values[near].type.dtype) {
        near = add(ops::Cast{.dtype = graph_.values[weight].type.dtype}, {near}, "rows.cast")[0];
        graph_.values[near].tier = Tier::host;
      }
      put(near, weight);
    }
    return std::move(graph_);
  }

  Graph store() {
    std::vector<ValueId> inputs{ids_};
    for (const RowTable::Tensor& tensor : table_.tensors) {
      const ValueId here = root(tensor.here);
      const Tier tier = graph_.values[here].tier;
      inputs.push_back(tier == Tier::host ? here : add(ops::Move{.from = tier, .to = Tier::host}, {here}, tensor.here + ".near")[0]);
    }
    inputs.insert(inputs.end(), tables_.begin(), tables_.end());
    const auto count = static_cast<std::int64_t>(tables_.size());
    add(ops::MoveRows{.tables = count, .back = true}, inputs, "rows.stored");
    return std::move(graph_);
  }

 private:
  std::vector<ValueId> add(const ops::Op& op, std::vector<ValueId> inputs, const std::string& name) {
    return graph_.add_node(op, std::move(inputs), block_, Phase::begin, name);
  }

  void put(ValueId near, ValueId root) {
    const Tier tier = graph_.values[root].tier;
    add(ops::Move{.from = Tier::host, .to = tier, .into = true}, {near, root}, graph_.values[root].name + ".put");
  }

  // What training has of the table, where it has it.
  ValueId root(const std::string& name) {
    const auto& [buffer, part] = find_(name);
    PLIMSOLL_CHECK(buffer != nullptr, "there is no buffer {}", name);
    const Role role = buffer->kind == plan::BufferKind::parameter ? Role::parameter
                      : buffer->kind == plan::BufferKind::master  ? Role::master
                                                                  : Role::state;
    return graph_.add_value({.name = name, .type = buffer->type, .role = role, .block = block_, .part = part, .tier = buffer->tier});
  }

  const RowTable& table_;
  const FindBuffer& find_;
  Graph graph_;
  BlockId block_;
  ValueId ids_;
  std::vector<ValueId> tables_;
};

}  // namespace

plan::Plan with_rows_apart(const LoweringInputs& inputs, const std::function<plan::Plan(const LoweringInputs&)>& work) {
  if (inputs.strategy.embedding_rows == strategy::EmbeddingRows::whole) return work(inputs);
  // Programs have the rows one after the other in the same place: it is as large as the largest of them needs.
  std::vector<Found> found;
  std::int64_t most = 0;
  for (const ProgramSource& source : inputs.programs) {
    const std::optional<Found> table = find_table(source.graph);
    if (!table) refuse("the model looks up no tokens");
    require_lookups_only(source.graph, *table);
    found.push_back(*table);
    const std::int64_t tokens = source.graph.values[table->tokens].type.shape.elements();
    most = std::max(most, tokens * source.micro_batches * inputs.strategy.batch_ranks());
  }
  const Graph& first = inputs.programs.front().graph;
  const std::int64_t rows = first.values[first.parameters[found.front().parameter].weight].type.shape[0];
  const std::int64_t room = std::min(rows, most);
  std::vector<Graph> graphs;
  for (std::size_t index = 0; index < found.size(); ++index)
    graphs.push_back(with_small_table(inputs.programs[index].graph, found[index], room));
  if (inputs.pass_done) inputs.pass_done(kEmbeddingRows, graphs.front());
  const RowTable table = table_of(first, found.front(), room);
  LoweringInputs apart = inputs;
  apart.rows = &table;
  std::vector<ProgramSource> programs;
  for (std::size_t index = 0; index < graphs.size(); ++index) {
    const ProgramSource& source = inputs.programs[index];
    programs.push_back({source.name, graphs[index], source.micro_batches, source.waiting_update_only, source.cadence, source.role});
  }
  apart.programs.swap(programs);
  return work(apart);
}

const graph::Parameter* token_table(const Graph& graph) {
  const std::optional<Found> found = find_table(graph);
  return found ? &graph.parameters[found->parameter] : nullptr;
}

std::string note_of(const RowTable& table) {
  const base::Bytes record = plan::record_bytes(table.whole, table.tensors.size());
  return fmt::format(
      "the token table is on disk, {} rows of {} with their moments: a step brings those of its tokens, {} at most ({}), updates them "
      "alone and "
      "takes them back",
      table.whole.shape[0], base::to_string(record), table.room, base::to_string(record * table.room));
}

Graph fetch_rows(const RowTable& table, const FindBuffer& find) {
  Graph graph = RowGraph(table, find).fetch();
  graph::verify(graph, kFetchRows);
  return graph;
}

Graph store_rows(const RowTable& table, const FindBuffer& find) {
  Graph graph = RowGraph(table, find).store();
  graph::verify(graph, kStoreRows);
  return graph;
}

}  // namespace plimsoll::lowering
