#include "lowering/passes/tile.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "graph/rewrite.h"
#include "lowering/passes/tile_rows.h"
#include "ops/step_scalars.h"

namespace plimsoll::lowering {

namespace {

using Rows = TileRows;
using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Role;
using graph::Value;
using graph::ValueId;

class Tiling {
 public:
  Tiling(const Graph& old, base::Bytes most)
      : old_(old), most_(most), rewrite_(old, graph::Values::fresh), new_(rewrite_.to()), tiles_(old.values.size()) {
    for (std::size_t index = 0; index < old.parameters.size(); ++index) {
      const graph::Parameter& parameter = old.parameters[index];
      const Value& weight = old.values[parameter.weight];
      // Tensor ranks that share a head sum what they have in common of its gradient: that stays together.
      const bool cuts =
          weight.type.shape.rank() == 2 && weight.type.bytes() > most.count && weight.part.tail == 0 && !parameter.rows_of_table;
      if (cuts && parameter.stored) {
        base::not_legal(
            "\"tile\" is {}, but {} of {} is stored as {}, which is decoded whole; use a larger \"tile\", or \"freeze_as\": \"none\"",
            base::to_string(most), parameter.name, base::to_string(base::Bytes{weight.type.bytes()}), parameter.stored->form->name);
      }
      cuts_.push_back(cuts ? tile_rows(weight, most) : std::vector<Rows>{});
      if (!cuts) continue;
      for (ValueId id : roots_of(parameter)) cut_of_[id.index] = index;
      if (parameter.gradient.valid()) cut_of_[parameter.gradient.index] = index;
    }
    trace_gradients();
  }

  Graph run() {
    for (std::uint32_t index = 0; index < old_.values.size(); ++index) add_root(ValueId{index});
    for (const Node& node : old_.nodes) add_node(node);
    new_.parameters.clear();
    Graph graph = rewrite_.take();
    graph.parameters = parameters();
    return graph;
  }

 private:
  // ---- what is cut

  std::vector<ValueId> roots_of(const graph::Parameter& parameter) const {
    std::vector<ValueId> roots{parameter.weight};
    if (parameter.master.valid() && parameter.master != parameter.weight) roots.push_back(parameter.master);
    std::copy_if(parameter.states.begin(), parameter.states.end(), std::back_inserter(roots),
                 [&](ValueId id) { return old_.values[id].state.cut == ops::State::Cut::parameter; });
    return roots;
  }

  bool is_cut(ValueId id) const { return cut_of_.contains(id.index); }
  const std::vector<Rows>& rows_of(ValueId id) const { return cuts_[cut_of_.at(id.index)]; }

  // Back from each gradient along what it is a sum of.
  void trace_gradients() {
    for (std::uint32_t index = static_cast<std::uint32_t>(old_.nodes.size()); index-- > 0;) {
      const Node& node = old_.nodes[NodeId{index}];
      for (std::size_t output = 0; output < node.outputs.size(); ++output) {
        if (!is_cut(node.outputs[output])) continue;
        for (ValueId source : sources_of(node, output)) {
          if (old_.values[source].role == Role::computed) cut_of_[source.index] = cut_of_.at(node.outputs[output].index);
        }
      }
    }
  }

  // What it adds to, or else what it is a sum of.
  static std::vector<ValueId> sources_of(const Node& node, std::size_t output) {
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      if (alias.required && alias.output == static_cast<int>(output)) return {node.inputs[static_cast<std::size_t>(alias.input)]};
    }
    return ops::is_elementwise(node.op) ? node.inputs : std::vector<ValueId>{};
  }

  // ---- roots and parameters

  void add_root(ValueId id) {
    const Value& value = old_.values[id];
    if (value.role == Role::computed) return;
    if (!is_cut(id)) {
      rewrite_.declare(id);
      return;
    }
    const std::vector<Rows>& rows = rows_of(id);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      Value part = value;
      part.name = tile_name(value.name, tile);
      const std::int64_t width = value.type.shape[1];
      if (part.part == ops::Part{}) part.part = {.whole = value.type.shape, .slice = value.type.shape};
      part.part.first = rows[tile].first * width;
      part.part.tile = rows[tile].count * width;
      part.type.shape = {rows[tile].count, width};
      tiles_[id.index].push_back(new_.add_value(std::move(part)));
    }
  }

  static std::string tile_name(const std::string& name, std::size_t tile) { return fmt::format("{}#{}", name, tile); }

  // Every tile is one.
  std::vector<graph::Parameter> parameters() const {
    std::vector<graph::Parameter> all;
    for (std::size_t index = 0; index < old_.parameters.size(); ++index) {
      const graph::Parameter& parameter = old_.parameters[index];
      for (std::size_t tile = 0; tile < std::max<std::size_t>(1, cuts_[index].size()); ++tile) {
        graph::Parameter part = parameter;
        if (!cuts_[index].empty()) part.name = tile_name(parameter.name, tile);
        part.weight = here(parameter.weight, tile);
        part.master = here(parameter.master, tile);
        for (ValueId& state : part.states) state = here(state, tile);
        if (parameter.gradient.valid()) part.gradient = here(parameter.gradient, tile);
        all.push_back(std::move(part));
      }
    }
    return all;
  }

  // The new value for an old one: of what is cut, one tile's.
  ValueId here(ValueId id, std::size_t tile) const { return is_cut(id) ? tiles_[id.index][tile] : rewrite_.now(id); }

  // ---- nodes

  // Adds a node beside an old one, in its block or in that of a tile.
  std::vector<ValueId> add(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, const Node& beside, std::string_view name) {
    return rewrite_.make(op, std::move(inputs), {block, beside.phase, beside.turn}, name);
  }

  const std::string& name_of(ValueId old) const { return old_.values[old].name; }

  // A tile's work in one block is a block.
  BlockId block_of(const Node& node, ValueId weight, std::size_t tile) {
    const auto [found, fresh] = blocks_.try_emplace(std::tuple(node.block.index, cut_of_.at(weight.index), tile));
    if (fresh)
      found->second = new_.blocks.add(
          {.name = tile_name(old_.parameters[cut_of_.at(weight.index)].name, tile), .stage = old_.blocks[node.block].stage});
    return found->second;
  }

  void add_node(const Node& node) {
    if (std::holds_alternative<ops::Linear>(node.op) && is_cut(node.inputs[1])) return add_linear(node);
    if (std::holds_alternative<ops::LinearGradInput>(node.op) && is_cut(node.inputs[1])) return add_grad_input(node);
    if (std::holds_alternative<ops::LinearGradWeight>(node.op) && is_cut(node.outputs[0])) return add_grad_weight(node);
    if (std::holds_alternative<ops::Embed>(node.op) && any_cut(node.inputs)) return add_embed(node);
    if (std::holds_alternative<ops::EmbedGrad>(node.op) && is_cut(node.outputs[0])) return add_embed_grad(node);
    if (std::holds_alternative<ops::HeadLoss>(node.op) && is_cut(node.inputs[1])) return add_head(node);
    if (!any_cut(node.inputs) && !any_cut(node.outputs)) return void(rewrite_.keep(node));
    if (ops::is_collective(node.op) && node.phase != graph::Phase::join) return add_bucket(node);
    if (ops::sums_squares(node.op)) return add_squares(node);
    if (const auto* prelude = ops::prelude_in(node.op)) return prelude->is_sum() ? add_sums(node, *prelude) : add_step(node);
    if (ops::is_elementwise(node.op)) return add_each(node);
    const ValueId whole = first_cut(any_cut(node.inputs) ? node.inputs : node.outputs);
    base::not_legal("\"tile\" is {}, but [{}] needs {} whole, which has {}; use a larger \"tile\", or another \"precision\"",
                    base::to_string(most_), ops::name_of(node.op), name_of(whole),
                    base::to_string(base::Bytes{old_.values[whole].type.bytes()}));
  }

  bool any_cut(const std::vector<ValueId>& ids) const {
    return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return is_cut(id); });
  }

  ValueId first_cut(const std::vector<ValueId>& ids) const {
    return *std::find_if(ids.begin(), ids.end(), [&](ValueId id) { return is_cut(id); });
  }

  // Once for each tile. What is made of what is cut is cut.
  void add_each(const Node& node) {
    const ValueId cut = first_cut(node.inputs);
    for (std::size_t tile = 0; tile < rows_of(cut).size(); ++tile) {
      std::vector<ValueId> inputs;
      for (ValueId id : node.inputs) inputs.push_back(tile_of(id, cut, tile, node));
      const std::vector<ValueId> made = add(node.op, inputs, node.block, node, "part");
      for (std::size_t output = 0; output < made.size(); ++output) keep_tile(node.outputs[output], cut, tile, made[output]);
    }
  }

  // Of what is cut, the tile; of a step of the whole matrix, its rows.
  ValueId tile_of(ValueId id, ValueId cut, std::size_t tile, const Node& user) {
    if (is_cut(id) || old_.values[id].type.shape != old_.values[cut].type.shape) return here(id, tile);
    const base::Shape& part = new_.values[tiles_[cut.index][tile]].type.shape;
    const std::int64_t first = rows_of(cut)[tile].first * part[1];
    const std::string name = tile_name(name_of(id), tile);
    const ValueId flat = add(ops::Slice{.first = first, .count = part.elements()}, {rewrite_.now(id)}, user.block, user, name)[0];
    return add(ops::View{.shape = part}, {flat}, user.block, user, name)[0];
  }

  // ---- preludes of updates

  void add_sums(const Node& node, ops::UpdatePrelude prelude) {
    ValueId sums;
    for (std::size_t tile = 0; tile < rows_of(first_cut(node.inputs)).size(); ++tile) {
      std::vector<ValueId> inputs;
      for (ValueId id : node.inputs) inputs.push_back(here(id, tile));
      if (tile > 0) inputs.push_back(sums);
      prelude.into = tile > 0;
      sums = add(prelude, inputs, node.block, node, name_of(node.outputs[0]))[0];
    }
    rewrite_.replace(node.outputs[0], sums);
  }

  // The tiles' steps, put together: who reads them needs the matrix.
  void add_step(const Node& node) {
    const ValueId cut = first_cut(node.inputs);
    const ValueId old = node.outputs[0];
    for (std::size_t tile = 0; tile < rows_of(cut).size(); ++tile) {
      const Rows& rows = rows_of(cut)[tile];
      std::vector<ValueId> inputs;
      for (ValueId id : node.inputs) inputs.push_back(here(id, tile));
      std::vector<ValueId> put{add(node.op, inputs, node.block, node, tile_name(name_of(old), tile))[0]};
      if (tile > 0) put.push_back(rewrite_.now(old));
      const ops::PartOfDim part{.extent = old_.values[old].type.shape[0], .begin = rows.first, .count = rows.count};
      rewrite_.replace(old, add(ops::PutPart{.part = part, .into = tile > 0}, put, node.block, node, name_of(old))[0]);
    }
  }

  void keep_tile(ValueId old, ValueId like, std::size_t tile, ValueId made) {
    cut_of_[old.index] = cut_of_.at(like.index);
    new_.values[made].name = tile_name(name_of(old), tile);
    new_.values[made].all_micro_batches = old_.values[old].all_micro_batches;
    tiles_[old.index].push_back(made);
  }

  void add_squares(const Node& node) {
    const auto whole = std::get<ops::SquaredNorm>(node.op);
    ValueId scalars = rewrite_.now(node.inputs[0]);
    for (ValueId gradient : tiles_[node.inputs[1].index]) scalars = add(whole, {scalars, gradient}, node.block, node, "scalars.norm")[0];
    rewrite_.replace(node.outputs[0], scalars);
  }

  // Tensors that are moved together: tiles in the place of the whole.
  void add_bucket(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      if (!is_cut(id)) inputs.push_back(rewrite_.now(id));
      if (is_cut(id)) inputs.insert(inputs.end(), tiles_[id.index].begin(), tiles_[id.index].end());
    }
    auto op = std::get<ops::Collective>(node.op);
    op.tensors = static_cast<std::int64_t>(inputs.size());
    const std::vector<ValueId> made = add(op, inputs, node.block, node, "part");
    std::size_t next = 0;
    for (std::size_t output = 0; output < node.outputs.size(); ++output) {
      const ValueId old = node.outputs[output];
      if (!is_cut(node.inputs[output])) {
        set(old, made[next++]);
        continue;
      }
      for (std::size_t tile = 0; tile < rows_of(node.inputs[output]).size(); ++tile)
        keep_tile(old, node.inputs[output], tile, made[next++]);
    }
  }

  // The new value for an old one that is whole.
  void set(ValueId old, ValueId made) {
    Value& value = new_.values[made];
    value.name = name_of(old);
    value.block = old_.values[old].block;
    rewrite_.replace(old, made);
  }

  // ---- linear layers

  // The tile's rows of what goes with a weight's rows, such as a bias, which is small and stays whole.
  ValueId slice(ValueId whole, const Rows& rows, BlockId block, const Node& beside) {
    return add(ops::Slice{.first = rows.first, .count = rows.count}, {rewrite_.now(whole)}, block, beside, name_of(whole) + ".rows")[0];
  }

  ValueId columns_of(ValueId old, const Rows& rows, BlockId block, const Node& beside) {
    return add(ops::TakeColumns{.first = rows.first, .count = rows.count}, {rewrite_.now(old)}, block, beside,
               name_of(old) + ".columns")[0];
  }

  std::vector<ValueId> linear_of(const Node& node, bool bias, ops::ActivationKind activation, std::size_t tile, BlockId block) {
    const Rows& rows = rows_of(node.inputs[1])[tile];
    std::vector<ValueId> inputs{rewrite_.now(node.inputs[0]), tiles_[node.inputs[1].index][tile]};
    if (bias) inputs.push_back(slice(node.inputs[2], rows, block, node));
    return add(ops::Linear{.bias = bias, .activation = activation}, inputs, block, node, name_of(node.outputs[0]) + ".columns");
  }

  // The last columns are put by the layer's own block: it is the one that makes the result.
  void add_linear(const Node& node) {
    const auto& linear = std::get<ops::Linear>(node.op);
    const std::vector<Rows>& rows = rows_of(node.inputs[1]);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, node.inputs[1], tile);
      const std::vector<ValueId> made = linear_of(node, linear.bias, linear.activation, tile, block);
      const bool last = tile + 1 == rows.size();
      for (std::size_t output = 0; output < made.size(); ++output)
        put_columns(node.outputs[output], made[output], rows[tile].first, old_.values[node.outputs[output]].type.shape[-1],
                    last ? node.block : block, node);
    }
  }

  // Into the value that earlier tiles put theirs into.
  void put_columns(ValueId old, ValueId columns, std::int64_t first, std::int64_t all, BlockId block, const Node& beside) {
    std::vector<ValueId> inputs{columns};
    if (first > 0) inputs.push_back(rewrite_.now(old));
    set(old, add(ops::PutColumns{.first = first, .columns = all, .into = first > 0}, inputs, block, beside, name_of(old))[0]);
  }

  // Adds a tile's summand to what earlier tiles made of a value.
  void add_summand(ValueId old, ValueId summand, std::size_t tile, BlockId block, const Node& beside) {
    set(old, tile == 0 ? summand : add(ops::Add{}, {rewrite_.now(old), summand}, block, beside, name_of(old))[0]);
  }

  void add_grad_input(const Node& node) {
    const ValueId dx = node.outputs[0];
    const std::vector<Rows>& rows = rows_of(node.inputs[1]);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, node.inputs[1], tile);
      const ValueId dy = columns_of(node.inputs[0], rows[tile], block, node);
      const ValueId summand = add(ops::LinearGradInput{}, {dy, tiles_[node.inputs[1].index][tile]}, block, node, name_of(dx))[0];
      add_summand(dx, summand, tile, block, node);
    }
    const ops::ActivationKind activation = std::get<ops::LinearGradInput>(node.op).activation;
    if (activation == ops::ActivationKind::none) return;
    // The slope belongs to the whole sum.
    set(dx,
        add(ops::ActivationGrad{.kind = activation}, {rewrite_.now(dx), rewrite_.now(node.inputs[2])}, node.block, node, name_of(dx))[0]);
  }

  void add_grad_weight(const Node& node) {
    const ValueId gradient = node.outputs[0];
    const std::vector<Rows>& rows = rows_of(gradient);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, gradient, tile);
      std::vector<ValueId> inputs{columns_of(node.inputs[0], rows[tile], block, node), rewrite_.now(node.inputs[1])};
      if (node.inputs.size() > 2) inputs.push_back(tiles_[node.inputs[2].index][tile]);
      keep_tile(gradient, gradient, tile, add(node.op, inputs, block, node, "part")[0]);
    }
  }

  // ---- tables

  // Ids in the tile's rows; those of others are elsewhere.
  ValueId shifted(ValueId ids, const Rows& rows, BlockId block, const Node& beside) {
    return add(ops::ShiftIds{.first = rows.first, .rows = rows.count}, {rewrite_.now(ids)}, block, beside, name_of(ids) + ".here")[0];
  }

  // Every id is in one tile, so the sum over tiles is exact. Tables that are whole are added behind them.
  void add_embed(const Node& node) {
    const ValueId out = node.outputs[0];
    std::vector<ValueId> whole;
    std::size_t summands = 0;
    for (std::size_t table = 1; table < node.inputs.size(); table += 2) {
      if (!is_cut(node.inputs[table])) {
        whole.insert(whole.end(), {rewrite_.now(node.inputs[table - 1]), rewrite_.now(node.inputs[table])});
        continue;
      }
      const std::vector<Rows>& rows = rows_of(node.inputs[table]);
      for (std::size_t tile = 0; tile < rows.size(); ++tile) {
        const BlockId block = block_of(node, node.inputs[table], tile);
        const ValueId ids = shifted(node.inputs[table - 1], rows[tile], block, node);
        const ValueId found = add(ops::Embed{}, {ids, tiles_[node.inputs[table].index][tile]}, block, node, name_of(out))[0];
        add_summand(out, found, summands++, block, node);
      }
    }
    const auto tables = static_cast<std::int64_t>(whole.size() / 2);
    if (tables > 0)
      add_summand(out, add(ops::Embed{.tables = tables}, whole, node.block, node, name_of(out))[0], summands, node.block, node);
  }

  void add_embed_grad(const Node& node) {
    const ValueId gradient = node.outputs[0];
    const std::vector<Rows>& rows = rows_of(gradient);
    auto op = std::get<ops::EmbedGrad>(node.op);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, gradient, tile);
      std::vector<ValueId> inputs{shifted(node.inputs[0], rows[tile], block, node), rewrite_.now(node.inputs[1])};
      if (node.inputs.size() > 2) inputs.push_back(tiles_[node.inputs[2].index][tile]);
      op.rows = rows[tile].count;
      keep_tile(gradient, gradient, tile, add(op, inputs, block, node, "part")[0]);
    }
  }

  // ---- the head

  // The places of a head's operands, which depend on its having a bias.
  struct Head {
    bool bias = false;
    ValueId targets;
    ValueId scalars;
  };

  ValueId logits_of(const Node& node, const Head& head, std::size_t tile, BlockId block) {
    return linear_of(node, head.bias, ops::ActivationKind::none, tile, block)[0];
  }

  void add_head(const Node& node) {
    const auto& op = std::get<ops::HeadLoss>(node.op);
    const std::size_t at = op.bias ? 3 : 2;
    const Head head{.bias = op.bias, .targets = node.inputs[at], .scalars = node.inputs[at + 1]};
    const ValueId lse = add_losses(node, head);
    if (op.gradients) add_head_gradients(node, head, lse);
  }

  // What tensor ranks do with their parts of a vocabulary, one tile after the other.
  ValueId add_losses(const Node& node, const Head& head) {
    const std::vector<Rows>& rows = rows_of(node.inputs[1]);
    const auto tiles = static_cast<std::int64_t>(rows.size());
    ValueId parts;
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, node.inputs[1], tile);
      const ValueId targets = shifted(head.targets, rows[tile], block, node);
      const ValueId part = add(ops::CrossEntropyPart{}, {logits_of(node, head, tile, block), targets}, block, node, "loss.part")[0];
      const std::int64_t numbers = new_.values[part].type.shape[-1];
      std::vector<ValueId> inputs{part};
      if (tile > 0) inputs.push_back(parts);
      const ops::PutColumns put{.first = static_cast<std::int64_t>(tile) * numbers, .columns = tiles * numbers, .into = tile > 0};
      parts = add(put, inputs, block, node, "loss.parts")[0];
    }
    const std::vector<ValueId> made =
        add(ops::CrossEntropyMerge{.members = tiles}, {parts, rewrite_.now(head.targets)}, node.block, node, "loss");
    set(node.outputs[0], made[0]);
    return made[1];
  }

  void add_head_gradients(const Node& node, const Head& head, ValueId lse) {
    const std::vector<Rows>& rows = rows_of(node.inputs[1]);
    const auto& op = std::get<ops::HeadLoss>(node.op);
    for (std::size_t tile = 0; tile < rows.size(); ++tile) {
      const BlockId block = block_of(node, node.inputs[1], tile);
      const ValueId targets = shifted(head.targets, rows[tile], block, node);
      const ValueId logits = logits_of(node, head, tile, block);
      const std::vector<ValueId> operands{logits, targets, lse, rewrite_.now(head.scalars)};
      const ValueId slopes = add(ops::CrossEntropyGrad{}, operands, block, node, "logits.grad")[0];
      const ValueId summand =
          add(ops::LinearGradInput{}, {slopes, tiles_[node.inputs[1].index][tile]}, block, node, name_of(node.outputs[1]))[0];
      add_summand(node.outputs[1], summand, tile, block, node);
      if (is_cut(node.outputs[2])) {
        const ValueId x = rewrite_.now(node.inputs[0]);
        keep_tile(node.outputs[2], node.outputs[2], tile,
                  add(ops::LinearGradWeight{.dtype = op.dtype}, {slopes, x}, block, node, "part")[0]);
      }
      if (op.bias && is_gradient(node.outputs[3])) {
        const ValueId sums = add(ops::BiasGrad{.dtype = op.dtype}, {slopes}, block, node, name_of(node.outputs[3]) + ".rows")[0];
        put_columns(node.outputs[3], sums, rows[tile].first, old_.values[node.inputs[1]].type.shape[0], block, node);
      }
    }
    if (!op.bias || !is_gradient(node.outputs[3])) return;
    set(node.outputs[3], add(ops::Accumulate{}, {rewrite_.now(node.outputs[3])}, node.block, node, "part")[0]);
  }

  bool is_gradient(ValueId id) const {
    return std::any_of(old_.parameters.begin(), old_.parameters.end(),
                       [&](const graph::Parameter& parameter) { return parameter.gradient == id; });
  }

  const Graph& old_;
  base::Bytes most_;
  graph::Rewrite rewrite_;
  Graph& new_;
  std::vector<std::vector<Rows>> cuts_;                                            // by parameter; empty: it stays whole
  std::map<std::uint32_t, std::size_t> cut_of_;                                    // old value -> the parameter whose tiles it has
  std::vector<std::vector<ValueId>> tiles_;                                        // old value that is cut -> new values
  std::map<std::tuple<std::uint32_t, std::size_t, std::size_t>, BlockId> blocks_;  // (block, parameter, tile)
};

}  // namespace

Graph tile_weights(const Graph& graph, base::Bytes most) { return Tiling(graph, most).run(); }

}  // namespace plimsoll::lowering
