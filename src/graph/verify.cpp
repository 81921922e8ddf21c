// What a well-formed graph is.
#include <fmt/format.h>

#include "graph/graph.h"

namespace plimsoll::graph {

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), states_(states_of_values(graph)), written_(graph.values.size(), false), overwritten_(graph.values.size(), false) {}

  std::vector<std::string> run() {
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index)
      written_[index] = graph_.values[ValueId{index}].role != Role::computed;
    for (const Value& value : graph_.values) check_declared(value);
    for (const bool ahead : {true, false}) check_line(ahead);
    for (std::uint32_t index = 0; index < graph_.values.size(); ++index) {
      const Value& value = graph_.values[ValueId{index}];
      if (!written_[index] && value.producer.valid()) report("{} has a producer that does not make it", value.name);
    }
    for (ValueId id : graph_.results) {
      if (!id.valid() || !written_[id.index]) report("a result is never computed");
    }
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.frozen && parameter.gradient.valid()) report("frozen parameter {} has a gradient", parameter.name);
    }
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    found_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void check_line(bool ahead) {
    overwritten_.assign(graph_.values.size(), false);
    for (std::uint32_t index = 0; index < graph_.nodes.size(); ++index) {
      if (graph_.nodes[NodeId{index}].ahead == ahead) check(NodeId{index});
    }
  }

  void check(NodeId id) {
    const Node& node = graph_.nodes[id];
    const std::string_view op = ops::name_of(node.op);
    for (ValueId input : node.inputs) {
      if (!input.valid()) return report("node {} ({}): an operand is missing", id.index, op);
      if (!written_[input.index]) report("node {} ({}) reads {} before it is computed", id.index, op, graph_.values[input].name);
      if (overwritten_[input.index]) report("node {} ({}) reads {} after it was overwritten", id.index, op, graph_.values[input].name);
    }
    std::vector<TensorType> expected;
    try {
      expected = ops::definition_of(node.op).infer(node.op, graph_.types(node.inputs));
    } catch (const base::Error& error) {
      return report("node {}: {}", id.index, error.what());
    }
    if (expected.size() != node.outputs.size())
      return report("node {} ({}): {} results, expected {}", id.index, op, node.outputs.size(), expected.size());
    for (std::size_t index = 0; index < expected.size(); ++index) {
      const ValueId output = node.outputs[index];
      if (!output.valid()) continue;
      const Value& value = graph_.values[output];
      if (value.type != expected[index]) {
        report("{} is {}, but {} gives {}", value.name, base::to_string(value.type), op, base::to_string(expected[index]));
      }
      if (written_[output.index]) report("{} is computed twice", value.name);
      if (value.producer != id) report("{} does not know its producer", value.name);
      written_[output.index] = true;
    }
    check_state(node);
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      // Readers of the scalars' root see what the host wrote before the step, which no operator changes.
      if (alias.required && !alias.view && graph_.values[input].role != Role::scalars) overwritten_[input.index] = true;
    }
  }

  // What says who writes it is written by nobody else; what a pass wrote, a verdict may take back.
  void check_state(const Node& node) {
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId id = states_[node.inputs[static_cast<std::size_t>(alias.input)].index];
      if (!alias.required || alias.view || !id.valid() || !graph_.values[id].state.declared()) continue;
      const ops::State::Written written = graph_.values[id].state.written;
      const bool in_pass = (written == ops::State::Written::forward && node.phase == Phase::forward) ||
                           (written == ops::State::Written::backward && node.phase >= Phase::backward && node.phase <= Phase::join);
      const bool taken_back = node.phase == Phase::verdict && written != ops::State::Written::update;
      const bool as_said = in_pass || taken_back || (written == ops::State::Written::update && node.phase >= Phase::norm) ||
                           written == ops::State::Written::program;
      if (!as_said)
        report("{} writes {} in the {} phase, which says that it is written by: {}", ops::name_of(node.op), graph_.values[id].name,
               name_of(node.phase), ops::name_of(written));
    }
  }

  void check_declared(const Value& value) {
    if (!value.state.declared()) return;
    const bool parameter = value.role == Role::parameter || value.role == Role::master;
    if (value.role != Role::state && !parameter) report("{} is no state, but says how it is kept as one", value.name);
    if (value.init.kind != Init::Kind::none && !parameter) report("{} says twice how it starts", value.name);
    const bool adds = value.state.merge == ops::State::Merge::sum || value.state.merge == ops::State::Merge::mean;
    if (adds && value.type.dtype != base::DType::f32)
      report("{} is {}, but ranks merge it by its {}, which is for f32", value.name, base::to_string(value.type),
             ops::name_of(value.state.merge));
  }

  const Graph& graph_;
  std::vector<ValueId> states_;
  std::vector<bool> written_;
  std::vector<bool> overwritten_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> problems(const Graph& graph) { return Verifier(graph).run(); }

void verify(const Graph& graph, std::string_view after) {
  const std::vector<std::string> found = problems(graph);
  PLIMSOLL_CHECK(found.empty(), "after {}: {} problems, the first: {}", after, found.size(), found.front());
}

}  // namespace plimsoll::graph
