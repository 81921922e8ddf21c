#include "train/stored/weights.h"

#include <algorithm>

#include "base/error.h"
#include "train/session/initialise.h"
#include "train/session/low_halves.h"
#include "train/session/pieces.h"
#include "train/stored/snapshot.h"

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
      case DType::u16: values[index] = static_cast<float>(words[index]); break;
      case DType::u8: values[index] = static_cast<float>(static_cast<std::uint8_t>(data[index])); break;
      default: PLIMSOLL_CHECK(false, "a parameter in {}", base::name_of(type.dtype));
    }
  }
  return values;
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
    infos.push_back(
        {parameter.name, parameter.stored ? parameter.stored->decoded.shape : session.graph().values[parameter.weight].type.shape});
  return infos;
}

namespace {

// What a split weight leaves out.
void write_low_halves(const Buffers& buffers, const graph::Graph& graph, const graph::LowHalves& halves, const ParameterInfo& info,
                      const FillRows& fill) {
  const std::vector<std::string> low = buffers.holding(graph.values[halves.low].name);
  const std::vector<std::string> v = buffers.holding(graph.values[halves.v].name);
  write_in_pieces<float>(
      buffers, low, [&](std::int64_t row, std::span<float> values) { fill(info, row, values); },
      [&](std::size_t buffer, std::int64_t first, std::span<const float> values) {
        put_low_halves(buffers, {low[buffer], v[buffer]}, first, values);
      });
}

}  // namespace

void write_parameters(Session& session, const FillRows& fill) {
  session.settle();
  const graph::Graph& graph = session.graph();
  const Buffers& buffers = session.buffers();
  for (const graph::Parameter& parameter : graph.parameters) {
    const std::vector<std::string> masters = buffers.holding(graph.values[parameter.master].name);
    if (masters.empty()) continue;  // another place of the pipe axis has it
    if (parameter.stored) {
      const ParameterInfo info{parameter.name, parameter.stored->decoded.shape};
      write_stored(buffers, masters, *parameter.stored, [&](std::int64_t row, std::span<float> values) { fill(info, row, values); });
      continue;
    }
    const ops::Part part = buffers.part(masters[0]);
    const ParameterInfo info{parameter.name, part.whole};
    const bool is_whole = part.slice == part.whole && part.tile == 0 && part.shard == 0;
    if (buffers.buffer(masters[0]).type.dtype == DType::f32 && is_whole && buffers.in_host_memory(masters[0])) {
      fill(info, 0, buffers.view<float>(masters[0], plan::Access::write).first(static_cast<std::size_t>(part.whole.elements())));
    } else {
      write_in_pieces<float>(
          buffers, masters, [&](std::int64_t row, std::span<float> values) { fill(info, row, values); },
          [&](std::size_t buffer, std::int64_t first, std::span<const float> values) { buffers.put(masters[buffer], first, values); });
    }
    if (const std::optional<graph::LowHalves> halves = graph::low_halves(graph, parameter))
      write_low_halves(buffers, graph, *halves, info, fill);
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

// The slice of a tensor that another rank holds, whole or in tiles.
ops::Part slice_of_rank(const plan::Plan& plan, std::int32_t rank, const std::string& tensor) {
  const plan::RankClass& rank_class = plan::class_of(plan, rank);
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    const plan::Buffer& known = rank_class.buffers[plan::BufferId{index}];
    if (!known.persistent() || (known.name != tensor && known.name != tile_buffer(tensor, 0))) continue;
    ops::Part part = rank_class.part_of({index});
    part.first = part.tile = part.shard = 0;
    return part;
  }
  PLIMSOLL_CHECK(false, "rank {} has no {}", rank, tensor);
}

// Puts everybody's slices together.
std::vector<float> gather_slices(Session& session, const std::string& tensor, const std::vector<float>& own) {
  collectives::Group& group = *session.tensor_group();
  std::vector<ops::Part> parts;
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (int rank : group.members()) {
    parts.push_back(slice_of_rank(session.plan(), rank, tensor));
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

// Tiles follow each other in the slice.
std::vector<float> read_held(Session& session, const std::string& tensor) {
  const Buffers& buffers = session.buffers();
  std::vector<float> slice;
  for (const std::string& buffer : buffers.holding(tensor)) {
    ops::Part part = buffers.part(buffer);
    const std::vector<std::byte> held = part.shard == 0 ? buffers.copy(buffer) : gather_shards(session, buffer);
    part.shard = 0;
    const std::vector<float> tile = to_f32(held.data(), {buffers.buffer(buffer).type.dtype, base::Shape{ops::held_by(part, 0).count()}});
    slice.insert(slice.end(), tile.begin(), tile.end());
  }
  return buffers.part(buffers.holding(tensor)[0]).dim < 0 ? slice : gather_slices(session, tensor, slice);
}

}  // namespace

namespace {

// The elements that records hold. Bytes travel between ranks as numbers.
std::vector<float> decoded(const graph::Stored& stored, const std::vector<float>& bytes) {
  std::vector<std::uint8_t> records;
  records.reserve(bytes.size());
  for (const float byte : bytes) records.push_back(static_cast<std::uint8_t>(byte));
  std::vector<float> values(static_cast<std::size_t>(stored.decoded.shape.elements()));
  ops::decode_rows(*stored.form, stored.decoded.shape[-1], records, values);
  return values;
}

}  // namespace

// From the first rank that has it to all others.
std::vector<float> read_parameter(Session& session, const std::string& name) {
  session.settle();
  const graph::Graph& graph = session.graph();
  const graph::Parameter& parameter = find_parameter(session, name);
  const graph::Value& master = graph.values[parameter.master];
  std::vector<float> values;
  if (!session.buffers().holding(master.name).empty()) {
    values = read_held(session, master.name);
    if (const std::optional<graph::LowHalves> halves = graph::low_halves(graph, parameter))
      join_low_halves(values, read_held(session, graph.values[halves->low].name), read_held(session, graph.values[halves->v].name));
  }
  if (session.plan().mesh.extent(ops::Axis::pipe) > 1) {
    values.resize(static_cast<std::size_t>(master.type.shape.elements()));
    session.world()->broadcast(std::as_writable_bytes(std::span(values)), DType::f32, first_holder(session, master.name));
  }
  return parameter.stored ? decoded(*parameter.stored, values) : values;
}

std::vector<float> read_gradient(const Session& session, const std::string& name) {
  const graph::Value& gradient = session.graph().values[find_parameter(session, name).gradient];
  std::vector<float> values;
  for (const std::string& buffer : session.buffers().holding("train/" + gradient.name)) {
    const std::vector<float> tile =
        to_f32(session.buffers().bytes(buffer, plan::Access::read), {gradient.type.dtype, session.buffers().buffer(buffer).type.shape});
    values.insert(values.end(), tile.begin(), tile.end());
  }
  PLIMSOLL_CHECK(std::ssize(values) == gradient.type.shape.elements(), "the plan keeps no gradient of {}", name);
  return values;
}

}  // namespace plimsoll::train
