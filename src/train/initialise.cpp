#include "train/initialise.h"

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "ops/step_scalars.h"
#include "train/buffers.h"

namespace plimsoll::train {

namespace {

using base::DType;
using graph::Init;
using graph::Role;

void store(std::byte* where, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32: reinterpret_cast<float*>(where)[index] = value; return;
    case DType::bf16: reinterpret_cast<std::uint16_t*>(where)[index] = base::bf16_from_f32(value); return;
    case DType::f16: reinterpret_cast<std::uint16_t*>(where)[index] = base::f16_from_f32(value); return;
    default: PLIMSOLL_CHECK(false, "initial values in {}", base::name_of(dtype));
  }
}

// Elements 4j .. 4j+3 come from block j: words 0 and 1 give the first two, words 2 and 3 the others.
void draw_normal(std::byte* where, const base::TensorType& type, double std, base::RandomKey key) {
  const std::int64_t count = type.shape.elements();
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < (count + 3) / 4; ++block) {
    const auto index = static_cast<std::uint64_t>(block);
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
    const std::array<float, 2> low = base::normal_from_bits(bits[0], bits[1]);
    const std::array<float, 2> high = base::normal_from_bits(bits[2], bits[3]);
    const std::array<float, 4> values{low[0], low[1], high[0], high[1]};
    for (std::int64_t lane = 0; lane < 4 && 4 * block + lane < count; ++lane) {
      store(where, type.dtype, 4 * block + lane, static_cast<float>(std) * values[static_cast<std::size_t>(lane)]);
    }
  }
}

void write_rope_table(float* table, const base::Shape& shape, const std::vector<double>& frequencies) {
  const std::int64_t half = shape[1] / 2;
  for (std::int64_t position = 0; position < shape[0]; ++position) {
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(pair)];
      table[position * shape[1] + pair] = static_cast<float>(std::cos(angle));
      table[position * shape[1] + half + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

void fill(std::byte* where, const graph::Value& value, const std::string& name, std::uint64_t seed) {
  const std::int64_t count = value.type.shape.elements();
  switch (value.init.kind) {
    case Init::Kind::none:
    case Init::Kind::zeros: std::memset(where, 0, static_cast<std::size_t>(value.type.bytes())); return;
    case Init::Kind::ones:
      for (std::int64_t index = 0; index < count; ++index) store(where, value.type.dtype, index, 1.0f);
      return;
    case Init::Kind::normal: draw_normal(where, value.type, value.init.std, base::random_key(seed, base::hash_name(name))); return;
    case Init::Kind::rope: write_rope_table(reinterpret_cast<float*>(where), value.type.shape, value.init.frequencies); return;
  }
}

}  // namespace

std::vector<float> initial_values(const graph::Graph& graph, const graph::Parameter& parameter, std::uint64_t seed) {
  graph::Value value = graph.values[parameter.weight];
  value.type.dtype = DType::f32;
  std::vector<float> values(static_cast<std::size_t>(value.type.shape.elements()));
  fill(reinterpret_cast<std::byte*>(values.data()), value, parameter.name, seed);
  return values;
}

void initialise(const graph::Graph& graph, executor::Executor& executor, const InitialValues& with) {
  const Buffers buffers(executor);
  for (const graph::Value& value : graph.values) {
    if (value.role == Role::computed || value.role == Role::input || value.role == Role::master || !buffers.has(value.name)) continue;
    if (value.role == Role::parameter && !with.parameters) continue;
    fill(buffers.bytes(value.name), value, value.name, with.seed);
  }
  // A master draws what its parameter would have drawn, unrounded.
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.master == parameter.weight || !with.parameters) continue;
    const graph::Value& master = graph.values[parameter.master];
    fill(buffers.bytes(master.name), master, parameter.name, with.seed);
  }
  if (with.parameters) refresh_copies(graph, executor);
  if (graph.scalars.valid()) *reinterpret_cast<ops::StepScalars*>(buffers.bytes("scalars")) = ops::StepScalars{};
}

void refresh_copies(const graph::Graph& graph, executor::Executor& executor) {
  const Buffers buffers(executor);
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.master == parameter.weight) continue;
    const graph::Value& weight = graph.values[parameter.weight];
    const auto master = buffers.view<float>(graph.values[parameter.master].name);
    std::byte* copy = buffers.bytes(weight.name);
#pragma omp parallel for schedule(static)
    for (std::int64_t index = 0; index < weight.type.shape.elements(); ++index) {
      store(copy, weight.type.dtype, index, master[static_cast<std::size_t>(index)]);
    }
  }
}

}  // namespace plimsoll::train
