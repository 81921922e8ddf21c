#include "lowering/passes/encode_activations.h"

#include <algorithm>
#include <optional>

#include "codecs/builder.h"

namespace plimsoll::lowering {

namespace {

using codecs::Ask;
using codecs::Task;
using codecs::Wanted;
using graph::Node;
using graph::ValueId;

base::Shape as_matrix(const base::Shape& shape) { return {shape.rows(), shape[-1]}; }

// Of activations: sums of parts, and rows. Sums of gradients wait for the last micro-batch, and statistics are no matrices.
std::optional<Wanted> wanted_of(const Node& node, const ops::Collective& collective) {
  const bool activations = collective.axis == ops::Axis::tensor && collective.tensors == 1 && collective.first == 0 &&
                           graph::runs_per_micro_batch(node.phase) && node.turn == graph::Turn::each;
  if (!activations) return std::nullopt;
  if (collective.kind == ops::CollectiveKind::all_reduce) return Wanted::sum;
  if (collective.rows == 0) return std::nullopt;
  return collective.kind == ops::CollectiveKind::reduce_scatter ? Wanted::shard : Wanted::gather;
}

class Encoding {
 public:
  Encoding(const graph::Graph& old, const codecs::Choice& choice)
      : old_(old), choice_(choice), rewrite_(old, graph::Values::fresh), build_(rewrite_) {}

  graph::Graph run() {
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) {
      if (old_.values[ValueId{index}].role != graph::Role::computed) rewrite_.declare(ValueId{index});
    }
    for (const Node& node : old_.nodes) {
      const bool sent = ops::is_collective(node.op) ? encode_collective(node, std::get<ops::Collective>(node.op))
                        : ops::is_message(node.op)  ? encode_message(node, std::get<ops::Message>(node.op))
                                                    : false;
      if (!sent) rewrite_.keep(node);
    }
    return rewrite_.take();
  }

 private:
  bool takes(Wanted wanted, const base::TensorType& type, std::int64_t members) const {
    if (!base::is_float(type.dtype) || type.shape.rank() < 2) return false;
    return codecs::why_exact({.choice = choice_, .wanted = wanted, .type = {type.dtype, as_matrix(type.shape)}, .members = members})
        .empty();
  }

  bool encode_collective(const Node& node, const ops::Collective& collective) {
    const std::optional<Wanted> wanted = wanted_of(node, collective);
    if (!wanted) return false;
    const base::TensorType& given = old_.values[node.inputs[0]].type;
    const base::TensorType& made = old_.values[node.outputs[0]].type;
    const base::TensorType& whole = *wanted == Wanted::gather ? made : given;
    if (!takes(*wanted, whole, collective.members)) return false;
    Task task = task_of(node, *wanted);
    task.plain = collective;
    task.operands = {
        {.value = rewrite_.now(node.inputs[0]), .name = name_of(node.outputs[0]), .type = made, .whole = as_matrix(whole.shape)}};
    rewrite_.replace(node.outputs[0], codecs::emit(build_, task)[0]);
    return true;
  }

  bool encode_message(const Node& node, const ops::Message& message) {
    const base::TensorType type{message.dtype, message.shape};
    if (!takes(Wanted::message, type, 2)) return false;
    Task task = task_of(node, Wanted::message);
    task.message = message;
    task.message.first = 0;
    const std::string name = message.receive ? name_of(node.outputs[0]) : name_of(node.inputs[0]) + ".sent";
    const ValueId sent = message.receive ? ValueId{} : stretch_of(task, rewrite_.now(node.inputs[0]), message, name);
    task.operands = {{.value = sent, .name = name, .type = type, .whole = as_matrix(type.shape)}};
    const std::vector<ValueId> came = codecs::emit(build_, task);
    if (message.receive) rewrite_.replace(node.outputs[0], came[0]);
    return true;
  }

  // What a message takes of its operand, shaped as it.
  ValueId stretch_of(const Task& task, ValueId value, const ops::Message& message, const std::string& name) {
    const std::int64_t count = message.shape.elements();
    if (build_.type(value).shape.elements() == count) return build_.shaped(task, value, message.shape, name);
    const ValueId part = build_.make_one(task, ops::Slice{.first = message.first, .count = count}, {value}, name + ".rows");
    return build_.shaped(task, part, message.shape, name);
  }

  Task task_of(const Node& node, Wanted wanted) const {
    return {.wanted = wanted, .site = {node.block, node.phase, node.turn}, .choice = choice_};
  }
  const std::string& name_of(ValueId id) const { return old_.values[id].name; }

  const graph::Graph& old_;
  const codecs::Choice& choice_;
  graph::Rewrite rewrite_;
  codecs::Builder build_;
};

}  // namespace

graph::Graph encode_activations(const graph::Graph& graph, const codecs::Choice& choice) { return Encoding(graph, choice).run(); }

}  // namespace plimsoll::lowering
