#include "train/weights.h"

#include <algorithm>

#include "base/error.h"
#include "train/initialise.h"
#include "train/snapshot.h"

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
  if (dtype == DType::f32) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(data));
    return;
  }
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
  session.settle();
  const graph::Graph& graph = session.graph();
  const Buffers& buffers = session.buffers();
  std::vector<float> staged;
  for (const graph::Parameter& parameter : graph.parameters) {
    const std::string& master = graph.values[parameter.master].name;
    if (!buffers.has(master)) continue;  // another place of the pipe axis has it
    const ops::Part part = buffers.part(master);
    const ParameterInfo info{parameter.name, part.whole};
    const DType dtype = buffers.buffer(master).type.dtype;
    const bool on_disk = buffers.on_disk(master);
    if (dtype == DType::f32 && part.slice == part.whole && part.shard == 0 && !on_disk) {
      fill(info, buffers.view<float>(master, plan::Access::write).first(static_cast<std::size_t>(part.whole.elements())));
      continue;
    }
    staged.resize(static_cast<std::size_t>(part.whole.elements()));
    fill(info, staged);
    std::byte* bytes = on_disk ? nullptr : buffers.bytes(master);
    ops::for_each_run(part, buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
      const std::span<const float> run =
          std::span<const float>(staged).subspan(static_cast<std::size_t>(whole), static_cast<std::size_t>(count));
      const std::int64_t size = base::size_of(dtype);
      if (!on_disk) return from_f32(run, bytes + held * size, dtype);
      std::vector<std::byte> narrow(run.size() * static_cast<std::size_t>(size));
      from_f32(run, narrow.data(), dtype);
      buffers.write(master, held * size, narrow);
    });
  }
  session.refresh_weights();
}

namespace {

// Gives every rank that shares it out the whole of a tensor of which each holds a shard.
std::vector<std::byte> gather_shards(Session& session, const std::string& buffer) {
  const Buffers& buffers = session.buffers();
  const plan::Buffer& known = buffers.buffer(buffer);
  collectives::Group& group = *session.shard_group();
  const std::vector<std::byte> own = buffers.copy(buffer);
  std::vector<std::byte> whole(own.size() * static_cast<std::size_t>(group.size()));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), known.type.shape.elements());
  group.all_gather(own, whole, counts, known.type.dtype);
  return whole;
}

// The part of a buffer that another rank holds.
ops::Part part_of_rank(const plan::Plan& plan, std::int32_t rank, const std::string& buffer) {
  for (const plan::Buffer& known : plan::class_of(plan, rank).buffers) {
    if (known.persistent() && known.name == buffer) return known.part;
  }
  PLIMSOLL_CHECK(false, "rank {} has no {}", rank, buffer);
}

// Puts everybody's slices together.
std::vector<float> gather_slices(Session& session, const std::string& buffer, const std::vector<float>& own) {
  collectives::Group& group = *session.tensor_group();
  std::vector<ops::Part> parts;
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (int rank : group.members()) {
    parts.push_back(part_of_rank(session.plan(), rank, buffer));
    parts.back().shard = 0;  // the slice is together already
    counts.push_back(parts.back().slice.elements());
    total += counts.back();
  }
  std::vector<float> slices(static_cast<std::size_t>(total));
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(slices)), counts, DType::f32);
  std::vector<float> whole(static_cast<std::size_t>(parts[0].whole.elements()));
  const float* slice = slices.data();
  for (std::size_t member = 0; member < parts.size(); ++member) {
    ops::for_each_run(parts[member], 0, [&](std::int64_t first, std::int64_t held, std::int64_t count) {
      std::copy_n(slice + held, count, whole.begin() + first);
    });
    slice += counts[member];
  }
  return whole;
}

std::vector<float> read_held(Session& session, const std::string& buffer) {
  const Buffers& buffers = session.buffers();
  const ops::Part part = buffers.part(buffer);
  const base::TensorType type{buffers.buffer(buffer).type.dtype, part.slice};
  const std::vector<float> slice = to_f32((part.shard == 0 ? buffers.copy(buffer) : gather_shards(session, buffer)).data(), type);
  return part.dim < 0 ? slice : gather_slices(session, buffer, slice);
}

}  // namespace

// From the first rank that has it to all others.
std::vector<float> read_parameter(Session& session, const std::string& name) {
  session.settle();
  const graph::Value& master = session.graph().values[find_parameter(session, name).master];
  std::vector<float> values;
  if (session.buffers().has(master.name)) values = read_held(session, master.name);
  if (session.plan().mesh.pipe == 1) return values;
  values.resize(static_cast<std::size_t>(master.type.shape.elements()));
  session.world()->broadcast(std::as_writable_bytes(std::span(values)), DType::f32, first_holder(session, master.name));
  return values;
}

std::vector<float> read_gradient(const Session& session, const std::string& name) {
  const graph::Value& gradient = session.graph().values[find_parameter(session, name).gradient];
  return to_f32(session.buffers().bytes("train/" + gradient.name, plan::Access::read), gradient.type);
}

}  // namespace plimsoll::train
