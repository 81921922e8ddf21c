#include "lowering/passes/optimizer_tiers.h"

namespace plimsoll::lowering {

using graph::Graph;
using graph::NodeId;
using graph::ValueId;
using ops::Tier;

ValueId root_of(const Graph& graph, ValueId id) {
  for (NodeId maker = graph.values[id].producer; maker.valid() && ops::is_view(graph.nodes[maker].op); maker = graph.values[id].producer)
    id = graph.nodes[maker].inputs[0];
  return id;
}

std::vector<Tier> optimizer_tiers(const Graph& graph, const strategy::TierShare& share) {
  double all = 0.0;
  const auto elements = [&](const graph::Parameter& parameter) {
    return parameter.frozen ? 0.0 : static_cast<double>(graph.values[parameter.master].type.shape.elements());
  };
  for (const graph::Parameter& parameter : graph.parameters) all += elements(parameter);
  const double on_device = all * (1.0 - share.host - share.disk);
  const double in_memory = on_device + all * share.host;
  std::vector<Tier> tiers;
  double at = 0.0;
  for (const graph::Parameter& parameter : graph.parameters) {
    const double middle = at + elements(parameter) / 2.0;
    tiers.push_back(middle < on_device ? Tier::device : middle < in_memory ? Tier::host : Tier::disk);
    at += elements(parameter);
  }
  return tiers;
}

}  // namespace plimsoll::lowering
