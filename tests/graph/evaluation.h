// A graph computed node by node by the reference, in double: what a pass made can be held against differences of what it is made from.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "base/random.h"
#include "graph/graph.h"
#include "kernels/cpu/reference/compute.h"

namespace plimsoll::graph {

namespace reference = kernels::cpu::reference;
using reference::RefTensor;
using reference::RefValue;
using Roots = std::map<std::string, RefValue>;  // by the value's name

inline double drawn(const std::string& name, std::int64_t element) {
  const base::RandomBlock words = base::philox({static_cast<std::uint32_t>(element), 0, 0, 0}, base::random_key(11, base::hash_name(name)));
  return static_cast<double>(base::normal_from_bits(words[0], words[1])[0]);
}

inline RefTensor drawn_tensor(const std::string& name, const base::Shape& shape, double deviation = 1.0) {
  RefTensor tensor(shape);
  for (std::int64_t e = 0; e < tensor.elements(); ++e) tensor[e] = deviation * drawn(name, e);
  return tensor;
}

// Ids and positions that a model with this vocabulary takes.
inline RefTensor drawn_input(const Value& value, std::int64_t vocab) {
  RefTensor tensor(value.type.shape);
  const std::int64_t length = value.type.shape[-1];
  for (std::int64_t e = 0; e < tensor.elements(); ++e) {
    const auto id = static_cast<double>((e * 7 + 3 * (e / length)) % vocab);
    if (value.name == "tokens") tensor[e] = id;
    if (value.name == "targets") tensor[e] = e % 5 == 4 ? -1.0 : std::fmod(id + 7.0, static_cast<double>(vocab));
    if (value.name == "positions") tensor[e] = static_cast<double>(e % length);
    if (value.name == "token_types") tensor[e] = static_cast<double>(e % 2);
    if (value.name == "segments") tensor[e] = e % length < length - 1 ? static_cast<double>(e % length / 3) : -1.0;
    if (value.name == "samples") tensor[e] = static_cast<double>(e + 5);
  }
  return tensor;
}

inline RefTensor rope_table(const Value& value) {
  RefTensor table(value.type.shape);
  const std::int64_t half = table.columns() / 2;
  for (std::int64_t position = 0; position < table.rows(); ++position) {
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) * value.init.frequencies[static_cast<std::size_t>(pair)];
      table.at(position, pair) = std::cos(angle);
      table.at(position, half + pair) = std::sin(angle);
    }
  }
  return table;
}

// Something for every root: weights that are neither zeros nor ones.
inline Roots draw_roots(const Graph& graph, std::int64_t vocab) {
  Roots roots;
  for (const Value& value : graph.values) {
    if (value.role == Role::computed) continue;
    if (value.role == Role::scalars) {
      ops::StepScalars step;
      step.seed = 77;
      step.step = 3;
      step.loss_scale = 2.0f;
      step.inverse_tokens = 1.0f / 13.0f;
      roots[value.name] = step;
    } else if (value.role == Role::input) {
      roots[value.name] = drawn_input(value, vocab);
    } else if (value.init.kind == Init::Kind::rope) {
      roots[value.name] = rope_table(value);
    } else {
      RefTensor tensor = drawn_tensor(value.name, value.type.shape, value.role == Role::parameter ? 0.3 : 1.0);
      if (value.init.kind == Init::Kind::ones) {
        for (double& element : tensor.values) element += 1.0;
      }
      roots[value.name] = std::move(tensor);
    }
  }
  return roots;
}

// Every value of the graph.
inline base::IdVector<ValueId, RefValue> evaluate(const Graph& graph, const Roots& roots) {
  base::IdVector<ValueId, RefValue> values;
  for (const Value& value : graph.values) {
    values.add(value.role == Role::computed ? RefValue() : roots.at(value.name));
  }
  for (const Node& node : graph.nodes) {
    std::vector<RefValue> operands;
    for (ValueId id : node.inputs) operands.push_back(values[id]);
    if (ops::is_view(node.op)) {
      RefTensor seen = reference::tensor(operands[0]);
      seen.shape = graph.values[node.outputs[0]].type.shape;
      values[node.outputs[0]] = std::move(seen);
      continue;
    }
    reference::Results results = reference::evaluate(node.op, operands);
    for (std::size_t index = 0; index < results.size(); ++index) values[node.outputs[index]] = std::move(results[index]);
  }
  return values;
}

}  // namespace plimsoll::graph
