// The end of a step: squares of all gradients, the verdict, the update of every parameter, the closing of the step.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "graph/live_rows.h"
#include "graph/name_pattern.h"
#include "graph/passes/passes.h"
#include "graph/scalar_chains.h"
#include "ops/step_scalars.h"

namespace plimsoll::graph {

namespace {

using base::DType;

// Where the update works on the weight itself. The f32 numbers of a split one are whole again where the weight is in another tier: there
// halves would take as much.
bool in_place(const model::Training& training, DType weight) {
  if (training.masters) return false;
  return weight == DType::f32 || training.optimizer.master != model::Master::f32;
}

bool is_split(const model::Training& training, DType weight) {
  return training.optimizer.master == model::Master::split && weight == DType::bf16 && in_place(training, weight);
}

const ops::UpdateRule& rule_of(const model::Optimizer& optimizer, const Parameter& parameter) {
  const bool otherwise = optimizer.rule->prelude == ops::Prelude::matrix && !parameter.matrix;
  return otherwise ? ops::update_rule(optimizer.rule->otherwise) : *optimizer.rule;
}

ops::Update update_of(const model::Optimizer& optimizer, const Parameter& parameter, std::int64_t rank) {
  const ops::UpdateRule& rule = rule_of(optimizer, parameter);
  ops::Update update{.rule = &rule, .numbers = optimizer.all_numbers(rule), .weight_decay = rank >= 2 ? optimizer.weight_decay : 0.0};
  // Sums over a vector say little; what rules do with them is for matrices and tables.
  update.prelude = rule.prelude == ops::Prelude::matrix || (rule.prelude == ops::Prelude::sums && rank >= 2);
  for (const model::ParameterGroup& group : optimizer.groups) {
    const bool matches = std::any_of(group.match.begin(), group.match.end(),
                                     [&](const std::string& pattern) { return matches_name(pattern, parameter.name); });
    if (!matches) continue;
    update.rate = group.lr;
    if (group.decays) update.weight_decay = optimizer.weight_decay * group.weight_decay;
  }
  return update;
}

// A pattern that names nothing is a mistake.
void check_groups(const Graph& graph, const model::Optimizer& optimizer) {
  for (const model::ParameterGroup& group : optimizer.groups) {
    for (const std::string& pattern : group.match) {
      const bool any = std::any_of(graph.parameters.begin(), graph.parameters.end(),
                                   [&](const Parameter& parameter) { return matches_name(pattern, parameter.name); });
      if (any) continue;
      base::bad_input("\"optimizer.groups\": no parameter matches \"{}\"; the first and the last are {} and {}", pattern,
                      graph.parameters.front().name, graph.parameters.back().name);
    }
  }
}

// What each data rank has its own of, its update has too. A weight in the compute type follows from its master.
void add_roots(Graph& graph, Parameter& parameter, const model::Training& training) {
  const Value weight = graph.values[parameter.weight];
  const auto add = [&](std::string_view name, DType dtype, Role role, const Init& init) {
    return graph.add_value({.name = fmt::format("{}.{}", parameter.name, name),
                            .type = {dtype, weight.type.shape},
                            .role = role,
                            .block = weight.block,
                            .init = init});
  };
  const model::Optimizer& optimizer = training.optimizer;
  if (!in_place(training, weight.type.dtype)) {
    const DType dtype = optimizer.master == model::Master::none ? weight.type.dtype : DType::f32;
    parameter.master = add("master", dtype, Role::master, weight.init);
  }
  const DType moments = optimizer.moments == model::Moments::bf16 ? DType::bf16 : DType::f32;
  for (const ops::RuleState& state : rule_of(optimizer, parameter).states)
    parameter.states.push_back(add(state.name, moments, Role::state, {.kind = Init::Kind::zeros}));
  // Filled with the weight.
  if (is_split(training, weight.type.dtype)) parameter.states.push_back(add("low", DType::u16, Role::state, {}));
  if (!weight.state.declared()) return;
  graph.values[parameter.weight].state = {};
  graph.values[parameter.master].state = weight.state;
  for (ValueId id : parameter.states) {
    graph.values[id].state = weight.state;
    graph.values[id].init = {};
  }
}

// The parameters in the order the next forward needs them: by block, then as declared.
std::vector<Parameter*> in_block_order(Graph& graph) {
  std::vector<Parameter*> trained;
  for (Parameter& parameter : graph.parameters) {
    if (!parameter.frozen) trained.push_back(&parameter);
  }
  std::stable_sort(trained.begin(), trained.end(),
                   [&](const Parameter* a, const Parameter* b) { return graph.values[a->weight].block < graph.values[b->weight].block; });
  return trained;
}

// Where updates are a step late: the gradient waits beside the state of the optimizer, and what it is to be applied with in scalars of its
// own. Both are zeros at first, an update that changes nothing.
ValueId add_pending(Graph& graph, const Parameter& parameter) {
  const Value& weight = graph.values[parameter.weight];
  return graph.add_value({.name = parameter.name + ".pending",
                          .type = graph.values[parameter.gradient].type,
                          .role = Role::state,
                          .block = weight.block,
                          .init = {.kind = Init::Kind::zeros}});
}

void keep_for_next_step(Graph& graph, ValueId value, ValueId pending, BlockId block) {
  graph.add_node(ops::Move{.from = ops::Tier::device, .to = ops::Tier::device, .into = true}, {value, pending}, block, Phase::update,
                 graph.values[pending].name + ".put");
}

// What a rule wants to know of the whole parameter; invalid where it wants nothing.
ValueId append_prelude(Graph& graph, const ops::Update& update, const std::vector<ValueId>& inputs, const Parameter& parameter) {
  if (!update.prelude) return {};
  ops::Update plain = update;
  plain.copy = plain.prelude = false;
  const BlockId block = graph.values[parameter.weight].block;
  const ValueId made = graph.add_node(ops::UpdatePrelude{.update = plain}, inputs, block, Phase::update, parameter.name + ".prelude")[0];
  if (update.rule->prelude != ops::Prelude::matrix) return made;
  const auto number = [&](std::string_view name) { return update.numbers[static_cast<std::size_t>(update.rule->place_of(name))]; };
  const ops::Orthogonalize orthogonalize{
      .steps = static_cast<std::int64_t>(number("ns_steps")), .match_rms = number("match_rms"), .parts = parameter.matrix.value()};
  return graph.add_node(orthogonalize, {made}, block, Phase::update, parameter.name + ".orthogonal")[0];
}

// An update with what it reads.
struct Operands {
  ops::Update update;
  std::vector<ValueId> inputs;
};

Operands operands_of(Graph& graph, Parameter& parameter, const model::Training& training, ValueId scalars) {
  add_roots(graph, parameter, training);
  std::vector<ValueId> inputs{scalars, parameter.gradient, parameter.master};
  inputs.insert(inputs.end(), parameter.states.begin(), parameter.states.end());
  if (training.delayed) {
    inputs[0] = graph.pending;
    inputs[1] = add_pending(graph, parameter);
    parameter.states.push_back(inputs[1]);
  }
  const Value& weight = graph.values[parameter.weight];
  ops::Update update = update_of(training.optimizer, parameter, weight.type.shape.rank());
  update.copy = parameter.master != parameter.weight;
  update.split = is_split(training, weight.type.dtype);
  if (const ValueId prelude = append_prelude(graph, update, inputs, parameter); prelude.valid()) inputs.push_back(prelude);
  if (update.copy) inputs.push_back(parameter.weight);
  return {update, std::move(inputs)};
}

void append_one(Graph& graph, const Parameter& parameter, Operands operands, bool delayed) {
  const BlockId block = graph.values[parameter.weight].block;
  graph.add_node(operands.update, std::move(operands.inputs), block, Phase::update, parameter.name + ".updated");
  if (delayed) keep_for_next_step(graph, parameter.gradient, parameter.states.back(), block);
}

// Of the parameters of one block. Preludes come first, so that ranks that share out parameters exchange those of a block together.
void append_block(Graph& graph, std::span<Parameter* const> parameters, const model::Training& training, ValueId scalars) {
  const bool preludes = training.optimizer.rule->prelude != ops::Prelude::none;
  std::vector<Operands> waiting;
  for (Parameter* parameter : parameters) {
    waiting.push_back(operands_of(graph, *parameter, training, scalars));
    if (preludes) continue;
    append_one(graph, *parameter, std::move(waiting.back()), training.delayed);
  }
  for (std::size_t index = 0; preludes && index < parameters.size(); ++index)
    append_one(graph, *parameters[index], std::move(waiting[index]), training.delayed);
}

}  // namespace

void append_update(Graph& graph, const model::Training& training) {
  const model::Optimizer& optimizer = training.optimizer;
  const bool scales = training.precision == model::Precision::fp16;
  const BlockId step{0};
  check_groups(graph, optimizer);
  // Losses were summed in the forward pass, behind the head: that is the newest version of the scalars.
  ValueId scalars = ScalarChains(graph).newest(graph.scalars);
  const std::vector<Parameter*> trained = in_block_order(graph);
  for (Parameter* parameter : trained) {
    scalars = graph.add_node(ops::SquaredNorm{}, {scalars, parameter->gradient}, graph.values[parameter->weight].block, Phase::norm,
                             "scalars.norm")[0];
  }
  scalars =
      graph.add_node(ops::PrepareUpdate{.clip = optimizer.clip, .check_finite = scales || optimizer.clip > 0.0 || LiveRows(graph).any()},
                     {scalars}, step, Phase::verdict, "scalars.verdict")[0];
  if (training.delayed) {
    graph.pending = graph.add_value({.name = "scalars.pending",
                                     .type = ops::step_scalars_type(),
                                     .role = Role::state,
                                     .block = step,
                                     .init = {.kind = Init::Kind::zeros}});
  }
  for (auto first = trained.begin(); first != trained.end();) {
    const BlockId block = graph.values[(*first)->weight].block;
    const auto last = std::find_if(first, trained.end(), [&](const Parameter* each) { return graph.values[each->weight].block != block; });
    append_block(graph, {first, last}, training, scalars);
    first = last;
  }
  if (training.delayed) keep_for_next_step(graph, scalars, graph.pending, step);
  const model::LossScaling& scaling = training.loss_scaling;
  graph.add_node(ops::FinishStep{.dynamic = scales, .window = scaling.window, .hysteresis = scaling.hysteresis, .minimum = scaling.minimum},
                 {scalars}, step, Phase::finish, "scalars.finished");
}

}  // namespace plimsoll::graph
