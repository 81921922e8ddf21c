#include "codecs/emulation.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"
#include "ops/step_scalars.h"
#include "plan/traffic.h"

namespace plimsoll::codecs {

using graph::Node;
using graph::NodeId;
using graph::Role;
using kernels::cpu::reference::RefTensor;
using kernels::cpu::reference::RefValue;
using ops::CollectiveKind;

namespace {

CollectiveKind kind_of(Wanted wanted) {
  return wanted == Wanted::sum     ? CollectiveKind::all_reduce
         : wanted == Wanted::shard ? CollectiveKind::reduce_scatter
                                   : CollectiveKind::all_gather;
}

const RefTensor& tensor_of(const RefValue& value) { return std::get<RefTensor>(value); }

void round_to(RefTensor& tensor, base::DType dtype) {
  if (!base::is_float(dtype)) return;
  for (double& value : tensor.values) value = kernels::cpu::reference::rounded(value, dtype);
}

RefTensor resized(const RefTensor& from, const base::Shape& shape) {
  RefTensor to(shape);
  std::copy_n(from.values.begin(), std::min(from.elements(), to.elements()), to.values.begin());
  return to;
}

}  // namespace

Emulation::Emulation(const Given& given) : given_(given), ranks_(static_cast<std::size_t>(given.members)) { write(); }

std::int64_t Emulation::rows_of(std::int64_t rank) const {
  return ops::Seat{.members = given_.members, .place = rank}.units_here(given_.whole.rows());
}

// What rank 0 has; of the first ranks, which have the most rows.
base::TensorType Emulation::own_type() const {
  const std::int64_t members = given_.members;
  const std::int64_t unit = members * ops::kSumBlock;
  const std::int64_t padded = (given_.whole.elements() + unit - 1) / unit * unit;
  if (given_.by_rows && given_.wanted == Wanted::gather) return {given_.dtype, {rows_of(0), given_.whole[-1]}};
  if (given_.by_rows || given_.wanted == Wanted::sum || given_.wanted == Wanted::message) return {given_.dtype, given_.whole};
  return {given_.dtype, base::Shape{given_.wanted == Wanted::gather ? padded / members : padded}};
}

void Emulation::write() {
  const std::int64_t members = given_.members;
  from_.blocks.add({.name = "step"});
  from_.scalars = from_.add_value({.name = "scalars", .type = ops::step_scalars_type(), .role = Role::scalars});
  const ValueId weight = from_.add_value({.name = "w", .type = {base::DType::f32, given_.whole}, .role = Role::parameter});
  operand_ = from_.add_value({.name = "x", .type = own_type(), .role = Role::input});
  graph::Rewrite rewrite(from_);
  Builder build(rewrite, given_.remembers);
  const std::int64_t unit = members * ops::kSumBlock;
  const std::int64_t padded = (given_.whole.elements() + unit - 1) / unit * unit;
  const bool flat = !given_.by_rows && given_.wanted != Wanted::message;
  base::Shape made = given_.whole;
  if (flat && given_.wanted == Wanted::gather) made = {padded};
  if (flat && given_.wanted == Wanted::shard) made = {padded / members};
  if (given_.by_rows && given_.wanted == Wanted::shard) made = {rows_of(0), given_.whole[-1]};
  Task task{.wanted = given_.wanted,
            .plain = {.kind = kind_of(given_.wanted), .members = members},
            .message = {.dtype = given_.dtype, .shape = given_.whole},
            .site = {graph::BlockId{0}, graph::Phase::backward},
            .choice = given_.choice,
            .operands = {{.value = operand_,
                          .name = "x",
                          .type = {given_.dtype, made},
                          .whole = given_.whole,
                          .like = given_.remembers ? weight : ValueId{},
                          .shard = flat ? padded / members : 0}}};
  if (given_.by_rows && given_.wanted != Wanted::sum) task.plain.rows = given_.whole.rows();
  const base::Shape asked = flat ? base::Shape{given_.wanted == Wanted::sum ? given_.whole.elements() : padded} : given_.whole;
  ask_ = {.choice = given_.choice, .wanted = given_.wanted, .type = {given_.dtype, asked}, .members = members};
  results_ = emit(build, task);
  if (given_.wanted == Wanted::message) {
    task.message.receive = true;
    task.operands[0].value = {};
    results_ = emit(build, task);
  }
  build.undo_where_skipped(from_.scalars);
  graph_ = rewrite.take();
}

std::vector<Values> Emulation::step(const std::vector<Values>& operands, const ops::StepScalars& scalars) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<RefValue>& values = ranks_[rank].values;
    values.resize(graph_.values.size());
    for (std::uint32_t index = 0; index < graph_.values.size() && first_; ++index) {
      const graph::Value& value = graph_.values[ValueId{index}];
      if (value.role == Role::state) values[index] = RefTensor(value.type.shape);
    }
    values[graph_.scalars.index] = scalars;
    const base::TensorType type = own_type();
    RefTensor given(given_.by_rows && given_.wanted == Wanted::gather
                        ? base::Shape{rows_of(static_cast<std::int64_t>(rank)), type.shape[-1]}
                        : type.shape);
    std::copy_n(operands[rank].begin(), std::min(operands[rank].size(), given.values.size()), given.values.begin());
    round_to(given, type.dtype);
    values[operand_.index] = std::move(given);
  }
  first_ = false;
  for (const Node& node : graph_.nodes) run(node);
  std::vector<Values> made;
  for (const Rank& rank : ranks_) made.push_back(tensor_of(rank.values[results_[0].index]).values);
  // States are written in place.
  for (Rank& rank : ranks_) {
    for (const Node& node : graph_.nodes) {
      for (const ops::Alias& alias : ops::aliases_of(node.op)) {
        if (!alias.required || alias.view) continue;
        ValueId root = node.inputs[static_cast<std::size_t>(alias.input)];
        while (graph_.values[root].producer.valid() && graph_.values[root].role == Role::computed) {
          const Node& maker = graph_.nodes[graph_.values[root].producer];
          const std::vector<ops::Alias> aliases = ops::aliases_of(maker.op);
          if (aliases.empty() || !aliases[0].required || aliases[0].view) break;
          root = maker.inputs[static_cast<std::size_t>(aliases[0].input)];
        }
        if (graph_.values[root].role == Role::state)
          rank.values[root.index] = rank.values[node.outputs[static_cast<std::size_t>(alias.output)].index];
      }
    }
  }
  return made;
}

void Emulation::run(const Node& node) {
  if (ops::is_collective(node.op) || ops::is_message(node.op)) return run_collective(node);
  for (Rank& rank : ranks_) {
    if (ops::is_view(node.op)) {
      const RefTensor& from = tensor_of(rank.values[node.inputs[0].index]);
      base::Shape shape = graph_.values[node.outputs[0]].type.shape;
      // Ranks have different numbers of rows, and the graph is that of the first.
      if (shape.rank() == 1 && given_.by_rows) shape = {from.elements()};
      rank.values[node.outputs[0].index] = resized(from, shape);
      continue;
    }
    std::vector<RefValue> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rank.values[id.index]);
    std::vector<RefValue> outputs = kernels::cpu::reference::evaluate(node.op, inputs);
    for (std::size_t index = 0; index < outputs.size(); ++index) {
      if (auto* tensor = std::get_if<RefTensor>(&outputs[index])) round_to(*tensor, graph_.values[node.outputs[index]].type.dtype);
      rank.values[node.outputs[index].index] = std::move(outputs[index]);
    }
  }
}

// By what ops/collective.h says of each kind. A message goes from each rank to the next.
void Emulation::run_collective(const Node& node) {
  const std::size_t members = ranks_.size();
  if (ops::is_message(node.op)) {
    static std::vector<RefTensor> under_way;
    if (!std::get<ops::Message>(node.op).receive) {
      under_way.clear();
      for (const Rank& rank : ranks_) under_way.push_back(tensor_of(rank.values[node.inputs[0].index]));
      return;
    }
    for (std::size_t rank = 0; rank < members; ++rank) ranks_[rank].values[node.outputs[0].index] = under_way[rank];
    return;
  }
  const auto& op = std::get<ops::Collective>(node.op);
  const base::TensorType type = graph_.values[node.outputs[0]].type;
  std::vector<RefTensor> given;
  for (const Rank& rank : ranks_) given.push_back(tensor_of(rank.values[node.inputs[0].index]));
  const auto sum = [&] {
    RefTensor total = given[0];
    for (std::size_t rank = 1; rank < members; ++rank) {
      for (std::int64_t e = 0; e < total.elements(); ++e)
        total[e] = kernels::cpu::reference::rounded(total[e] + given[rank][e], base::DType::f32);
    }
    round_to(total, type.dtype);
    return total;
  };
  const auto part = [&](const RefTensor& whole, std::size_t rank) {
    const ops::Seat seat{.members = op.members, .place = static_cast<std::int64_t>(rank)};
    const std::int64_t rows = op.rows > 0 ? op.rows : whole.elements();
    const std::int64_t columns = whole.elements() / rows;
    const std::int64_t first = seat.units_before(rows) * columns;
    const std::int64_t count = seat.units_here(rows) * columns;
    RefTensor own(op.rows > 0 ? base::Shape{seat.units_here(rows), columns} : base::Shape{count});
    std::copy_n(whole.values.begin() + first, count, own.values.begin());
    return own;
  };
  for (std::size_t rank = 0; rank < members; ++rank) {
    RefValue& made = ranks_[rank].values[node.outputs[0].index];
    if (op.kind == CollectiveKind::all_reduce) {
      made = sum();
    } else if (op.kind == CollectiveKind::reduce_scatter) {
      made = part(sum(), rank);
    } else {
      std::vector<double> all;
      for (const RefTensor& from : given) {
        const auto each = static_cast<std::ptrdiff_t>(from.values.size() / members);
        const bool dealt = op.kind == CollectiveKind::all_to_all;
        const auto begin = from.values.begin() + (dealt ? static_cast<std::ptrdiff_t>(rank) * each : 0);
        all.insert(all.end(), begin, dealt ? begin + each : from.values.end());
      }
      base::Shape shape = type.shape;
      if (shape.rank() == 1) shape = {std::ssize(all)};
      made = RefTensor(shape, std::move(all));
    }
  }
}

Values Emulation::state(std::int64_t rank, std::string_view suffix) const {
  for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
    const graph::Value& value = graph_.values[ValueId{index}];
    if (value.role == Role::state && value.name.ends_with(suffix))
      return tensor_of(ranks_[static_cast<std::size_t>(rank)].values[index]).values;
  }
  PLIMSOLL_CHECK(false, "there is no state {}", suffix);
}

std::int64_t Emulation::sent_bytes() const {
  std::int64_t bytes = 0;
  for (const Node& node : graph_.nodes) {
    if (ops::is_message(node.op) && !std::get<ops::Message>(node.op).receive) bytes += graph_.values[node.inputs[0]].type.bytes();
    if (!ops::is_collective(node.op)) continue;
    const base::TensorType& given = graph_.values[node.inputs[0]].type;
    bytes += plan::sent_bytes(std::get<ops::Collective>(node.op), given, graph_.values[node.outputs[0]].type, 0);
  }
  return bytes;
}

}  // namespace plimsoll::codecs
