#include "lowering/layout/procedures.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "lowering/layout/memory.h"
#include "lowering/passes/offload.h"
#include "plan/instructions.h"

namespace plimsoll::lowering {

namespace {

using base::Bytes;
using base::TensorType;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

// A node as this call runs it; accumulation may have changed its operator and operands.
struct Step {
  ops::Op op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

class ProcedureMaker {
 public:
  ProcedureMaker(const ProcedureInputs& inputs, std::size_t piece) : inputs_(inputs), piece_(piece) {
    made_.procedure.name = inputs.pieces[piece].name;
  }

  BoundProcedure run(bool accumulate) {
    for (NodeId id : inputs_.pieces[piece_].nodes) {
      const Node& node = inputs_.graph.nodes[id];
      Step step{node.op, node.inputs, node.outputs};
      if (accumulate) make_accumulating(step);
      add(step);
    }
    lay_out_frame();
    return std::move(made_);
  }

 private:
  bool is_gradient(ValueId value) const { return inputs_.storages.all[inputs_.storages.of(value)].gradient; }

  // Makes the first writer of a parameter's gradient add to it.
  void make_accumulating(Step& step) {
    const ops::Definition& definition = ops::definition_of(step.op);
    if (definition.accumulated_outputs == nullptr) return;
    const std::vector<int> outputs = definition.accumulated_outputs(step.op);
    if (outputs.empty() || !is_gradient(step.outputs[static_cast<std::size_t>(outputs.front())])) return;
    const std::optional<ops::Op> form = definition.accumulating(step.op);
    if (!form) return;  // already adds: a later contribution to the same gradient
    step.op = *form;
    for (int index : outputs) step.inputs.push_back(step.outputs[static_cast<std::size_t>(index)]);
  }

  void add(const Step& step) {
    if (ops::is_view(step.op)) return;
    std::vector<plan::Operand> inputs;
    std::vector<plan::Operand> outputs;
    // Where a copy goes is its result, though its operator may name it among its operands.
    const std::size_t read = ops::is_copy(step.op) ? 1 : step.inputs.size();
    for (std::size_t input = 0; input < read; ++input) inputs.push_back(operand(step.inputs[input], false));
    for (ValueId id : step.outputs) outputs.push_back(operand(id, true));
    plan::Instruction instruction = plan::instruction_for(step.op, std::move(inputs), std::move(outputs));
    if (ops::definition_of(step.op).runs == ops::Runs::compute) choose_kernel(std::get<plan::Compute>(instruction), step);
    made_.procedure.instructions.push_back(std::move(instruction));
  }

  void choose_kernel(plan::Compute& compute, const Step& step) {
    const std::vector<TensorType> input_types = inputs_.graph.types(step.inputs);
    const std::vector<TensorType> output_types = inputs_.graph.types(step.outputs);
    const ops::KernelChoice choice = inputs_.choose({.op = step.op,
                                                     .inputs = input_types,
                                                     .outputs = output_types,
                                                     .threads = inputs_.threads,
                                                     .bounded = live_of(step) != nullptr,
                                                     .tier = inputs_.pieces[piece_].tier});
    compute.kernel = choice.name;
    compute.workspace = Bytes{choice.workspace};
    if (choice.workspace > 0) with_workspace_.push_back(made_.procedure.instructions.size());
    if (const graph::Live* live = live_of(step)) {
      compute.live = {.count = operand(live->count, false),
                      .bound = live->bound,
                      .expected = live->expected,
                      .inputs = live_bits(step.inputs),
                      .outputs = live_bits(step.outputs)};
    }
  }

  const graph::Live* live_of(const Step& step) const {
    for (ValueId id : step.inputs) {
      if (const graph::Live* live = inputs_.live.of(id)) return live;
    }
    return nullptr;
  }

  std::uint64_t live_bits(const std::vector<ValueId>& ids) const {
    std::uint64_t bits = 0;
    for (std::size_t index = 0; index < ids.size(); ++index) bits |= std::uint64_t{inputs_.live.of(ids[index]) != nullptr} << index;
    return bits;
  }

  plan::Operand operand(ValueId value, bool written) {
    const StorageId storage = inputs_.storages.of(value);
    const TensorType& type = inputs_.graph.values[value].type;
    const auto moment = static_cast<std::int32_t>(made_.procedure.instructions.size());
    const auto& [shard, offset] = inputs_.storages.starts[value.index];
    if (inputs_.only_in[storage.index] != piece_) return {plan::Operand::Kind::slot, slot(storage, written), type, shard, offset};
    PLIMSOLL_CHECK((shard + offset).count == 0, "{} is a part of a value inside one call", inputs_.graph.values[value].name);
    const auto [found, fresh] = temporary_of_.try_emplace(storage.index, static_cast<std::uint32_t>(made_.procedure.temporaries.size()));
    if (fresh) {
      const Storage& known = inputs_.storages.all[storage];
      PLIMSOLL_CHECK(known.bytes.count == known.type.bytes(), "{} is padded inside one call", inputs_.graph.values[known.value].name);
      made_.procedure.temporaries.push_back({.name = inputs_.graph.values[known.value].name, .type = known.type});
      lifetimes_.push_back({known.bytes, moment, moment});
    }
    lifetimes_[found->second].last = moment;
    return {plan::Operand::Kind::temporary, found->second, type};
  }

  std::uint32_t slot(StorageId storage, bool written) {
    const auto [found, fresh] = slot_of_.try_emplace(storage.index, static_cast<std::uint32_t>(made_.slots.size()));
    if (fresh) {
      const Storage& known = inputs_.storages.all[storage];
      made_.slots.push_back(storage);
      made_.procedure.slots.push_back({.name = inputs_.graph.values[known.value].name,
                                       .type = known.type,
                                       .bytes = known.bytes,
                                       .access = written ? plan::Access::write : plan::Access::read});
    } else if (written && made_.procedure.slots[found->second].access == plan::Access::read) {
      made_.procedure.slots[found->second].access = plan::Access::update;
    }
    return found->second;
  }

  // Temporaries and workspaces share the frame by their lifetimes within the call.
  void lay_out_frame() {
    std::vector<Lifetime> lifetimes = lifetimes_;
    const auto compute = [&](std::size_t index) -> plan::Compute& { return std::get<plan::Compute>(made_.procedure.instructions[index]); };
    for (const std::size_t index : with_workspace_)
      lifetimes.push_back({compute(index).workspace, static_cast<std::int32_t>(index), static_cast<std::int32_t>(index)});
    const Layout layout = assign_offsets(lifetimes, plan::kAlignment);
    for (std::size_t index = 0; index < lifetimes_.size(); ++index) made_.procedure.temporaries[index].offset = layout.offsets[index];
    for (std::size_t index = 0; index < with_workspace_.size(); ++index)
      compute(with_workspace_[index]).workspace_offset = layout.offsets[lifetimes_.size() + index];
    made_.procedure.frame = layout.total;
  }

  const ProcedureInputs& inputs_;
  std::size_t piece_;
  BoundProcedure made_;
  std::vector<Lifetime> lifetimes_;  // of the temporaries
  std::vector<std::size_t> with_workspace_;
  std::unordered_map<std::uint32_t, std::uint32_t> temporary_of_;
  std::unordered_map<std::uint32_t, std::uint32_t> slot_of_;
};

// Where a node's operands lie; a move's lie in two tiers.
plan::Tier tier_of(const Graph& graph, const Node& node) {
  const ops::Runs runs = ops::definition_of(node.op).runs;
  if (runs == ops::Runs::copy || runs == ops::Runs::row_copy) return plan::Tier::device;
  const ValueId any = node.outputs.empty() ? node.inputs.front() : node.outputs.front();
  return graph.values[any].tier;
}

plan::StreamKind stream_of(const ops::Move& move) {
  if (move.from == move.to) return plan::StreamKind::compute;
  if (move.from == ops::Tier::host) return move.to == ops::Tier::disk ? plan::StreamKind::disk_out : plan::StreamKind::host_in;
  return move.from == ops::Tier::disk ? plan::StreamKind::disk_in : plan::StreamKind::host_out;
}

// What a computation waits for at once is done where it waits.
plan::StreamKind stream_of(const ops::Collective& collective, const plan::Mesh& mesh) {
  const plan::MeshAxis* axis = mesh.find(collective.axis);
  return axis != nullptr && axis->row.at_once ? plan::StreamKind::compute : plan::StreamKind::communication;
}

plan::StreamKind stream_of(const Graph& graph, const Node& node, const plan::Mesh& mesh, bool host_beside) {
  switch (ops::definition_of(node.op).runs) {
    case ops::Runs::message: return std::get<ops::Message>(node.op).receive ? plan::StreamKind::receive : plan::StreamKind::send;
    case ops::Runs::copy: return stream_of(std::get<ops::Move>(node.op));
    case ops::Runs::row_copy: return std::get<ops::MoveRows>(node.op).back ? plan::StreamKind::disk_out : plan::StreamKind::disk_in;
    case ops::Runs::collective: return stream_of(std::get<ops::Collective>(node.op), mesh);
    default: break;
  }
  return host_beside && tier_of(graph, node) == plan::Tier::host ? plan::StreamKind::host_compute : plan::StreamKind::compute;
}

}  // namespace

std::vector<Piece> pieces_of(const Graph& graph, const plan::Mesh& mesh, bool host_beside) {
  std::vector<Piece> pieces;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[NodeId{index}];
    if (ops::is_view(node.op)) continue;
    const plan::StreamKind stream = stream_of(graph, node, mesh, host_beside);
    const bool goes_on = !pieces.empty() && pieces.back().block == node.block && pieces.back().phase == node.phase &&
                         pieces.back().turn == node.turn && pieces.back().stream == stream && pieces.back().tier == tier_of(graph, node);
    if (!goes_on) {
      const bool computes = stream == plan::StreamKind::compute || stream == plan::StreamKind::host_compute;
      const std::string_view what = computes && is_update(node.op)              ? graph::name_of(graph::Phase::update)
                                    : computes                                  ? graph::name_of(node.phase)
                                    : stream == plan::StreamKind::communication ? ops::name_of(std::get<ops::Collective>(node.op).kind)
                                                                                : plan::name_of(stream);
      pieces.push_back({.block = node.block,
                        .phase = node.phase,
                        .turn = node.turn,
                        .stream = stream,
                        .tier = tier_of(graph, node),
                        .nodes = {},
                        .name = fmt::format("{}.{}", graph.blocks[node.block].name, what)});
    }
    pieces.back().nodes.push_back(NodeId{index});
  }
  return pieces;
}

ProcedureInputs::ProcedureInputs(const Graph& its_graph, const Storages& its_storages, const std::vector<Piece>& its_pieces,
                                 const ops::ChooseKernel& how, int count)
    : graph(its_graph), storages(its_storages), pieces(its_pieces), choose(how), threads(count), live(its_graph) {
  constexpr auto kOutlives = static_cast<std::size_t>(-1);
  constexpr std::size_t kUntouched = kOutlives - 1;
  for (const Storage& storage : storages.all) only_in.push_back(storage.kind == plan::BufferKind::activation ? kUntouched : kOutlives);
  // A frame has whole values only.
  for (std::uint32_t value = 0; value < graph.values.size(); ++value) {
    const StorageId storage = storages.of_value[value];
    if (!storage.valid()) continue;
    const Storage& known = storages.all[storage];
    const auto& [shard, offset] = storages.starts[value];
    if ((shard + offset).count != 0 || known.bytes.count != known.type.bytes()) only_in[storage.index] = kOutlives;
  }
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto touch = [&](ValueId id) {
      std::size_t& only = only_in[storages.of(id).index];
      only = only == kUntouched || only == piece ? piece : kOutlives;
    };
    for (NodeId id : pieces[piece].nodes) {
      const Node& node = graph.nodes[id];
      std::for_each(node.inputs.begin(), node.inputs.end(), touch);
      std::for_each(node.outputs.begin(), node.outputs.end(), touch);
    }
  }
}

BoundProcedure make_procedure(const ProcedureInputs& inputs, std::size_t piece, bool accumulate) {
  return ProcedureMaker(inputs, piece).run(accumulate);
}

}  // namespace plimsoll::lowering
