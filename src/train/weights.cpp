#include "train/weights.h"

#include <algorithm>

#include "base/error.h"
#include "train/initialise.h"

namespace plimsoll::train {

namespace {

using base::DType;

std::vector<float> to_f32(const std::byte* data, const base::TensorType& type) {
  std::vector<float> values(static_cast<std::size_t>(type.shape.elements()));
  const auto* words = reinterpret_cast<const std::uint16_t*>(data);
  for (std::size_t index = 0; index < values.size(); ++index) {
    switch (type.dtype) {
      case DType::f32: values[index] = reinterpret_cast<const float*>(data)[index]; break;
      case DType::bf16: values[index] = base::f32_from_bf16(words[index]); break;
      case DType::f16: values[index] = base::f32_from_f16(words[index]); break;
      default: PLIMSOLL_CHECK(false, "a parameter in {}", base::name_of(type.dtype));
    }
  }
  return values;
}

void from_f32(std::span<const float> values, std::byte* data, DType dtype) {
  auto* words = reinterpret_cast<std::uint16_t*>(data);
  for (std::size_t index = 0; index < values.size(); ++index) {
    words[index] = dtype == DType::bf16 ? base::bf16_from_f32(values[index]) : base::f16_from_f32(values[index]);
  }
}

const graph::Parameter& find_parameter(const Session& session, const std::string& name) {
  const auto& parameters = session.graph().parameters;
  const auto found =
      std::find_if(parameters.begin(), parameters.end(), [&](const graph::Parameter& parameter) { return parameter.name == name; });
  PLIMSOLL_CHECK(found != parameters.end(), "there is no parameter {}", name);
  return *found;
}

}  // namespace

std::vector<ParameterInfo> parameters_of(const Session& session) {
  std::vector<ParameterInfo> infos;
  for (const graph::Parameter& parameter : session.graph().parameters)
    infos.push_back({parameter.name, session.graph().values[parameter.weight].type.shape});
  return infos;
}

void write_parameters(Session& session, const std::function<void(const ParameterInfo&, std::span<float>)>& fill) {
  const graph::Graph& graph = session.graph();
  std::vector<float> staged;
  for (const graph::Parameter& parameter : graph.parameters) {
    const graph::Value& master = graph.values[parameter.master];
    const ParameterInfo info{parameter.name, master.type.shape};
    if (master.type.dtype == DType::f32) {
      fill(info, session.buffers().view<float>(master.name));
      continue;
    }
    staged.resize(static_cast<std::size_t>(master.type.shape.elements()));
    fill(info, staged);
    from_f32(staged, session.buffers().bytes(master.name), master.type.dtype);
  }
  refresh_copies(graph, session.executor());
}

std::vector<float> read_parameter(const Session& session, const std::string& name) {
  const graph::Value& master = session.graph().values[find_parameter(session, name).master];
  return to_f32(session.buffers().bytes(master.name), master.type);
}

std::vector<float> read_gradient(const Session& session, const std::string& name) {
  const graph::Value& gradient = session.graph().values[find_parameter(session, name).gradient];
  return to_f32(session.buffers().bytes("train/" + gradient.name), gradient.type);
}

}  // namespace plimsoll::train
