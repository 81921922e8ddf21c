#include "train/initialise.h"

#include <algorithm>
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

// What goes to or comes from a drive is in memory so many elements at a time.
constexpr std::int64_t kStaged = std::int64_t{1} << 20;

// A stretch of a whole tensor's elements and where they go.
struct Stretch {
  std::byte* where = nullptr;
  DType dtype = DType::f32;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Elements 4j .. 4j+3 come from block j: words 0 and 1 give the first two, words 2 and 3 the others.
void draw_normal(const Stretch& to, double std, base::RandomKey key) {
  const std::int64_t end = to.first + to.count;
#pragma omp parallel for schedule(static)
  for (std::int64_t block = to.first / 4; block < (end + 3) / 4; ++block) {
    const auto index = static_cast<std::uint64_t>(block);
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
    const std::array<float, 2> low = base::normal_from_bits(bits[0], bits[1]);
    const std::array<float, 2> high = base::normal_from_bits(bits[2], bits[3]);
    const std::array<float, 4> values{low[0], low[1], high[0], high[1]};
    for (std::int64_t element = std::max(4 * block, to.first); element < std::min(4 * block + 4, end); ++element)
      store(to.where, to.dtype, element - to.first, static_cast<float>(std) * values[static_cast<std::size_t>(element - 4 * block)]);
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

void fill(const Stretch& to, const Init& init, const std::string& name, std::uint64_t seed) {
  switch (init.kind) {
    case Init::Kind::none:
    case Init::Kind::zeros: std::memset(to.where, 0, static_cast<std::size_t>(to.count * base::size_of(to.dtype))); return;
    case Init::Kind::ones:
      for (std::int64_t index = 0; index < to.count; ++index) store(to.where, to.dtype, index, 1.0f);
      return;
    case Init::Kind::normal: draw_normal(to, init.std, base::random_key(seed, base::hash_name(name))); return;
    case Init::Kind::rope: PLIMSOLL_CHECK(false, "a rotary table in parts");
  }
}

// Fills what this rank holds of a value as the whole would be filled. Arenas hold zeros at first, so padding and what
// starts at zero are left alone: a gigabyte of moments is touched by the first update, not before.
void fill_held(const Buffers& buffers, const graph::Value& value, const std::string& drawn_as, std::uint64_t seed) {
  if (value.init.kind == Init::Kind::zeros || value.init.kind == Init::Kind::none) return;
  const DType dtype = buffers.buffer(value.name).type.dtype;
  const std::int64_t size = base::size_of(dtype);
  const ops::Part part = buffers.part(value.name);
  if (buffers.on_disk(value.name)) {
    std::vector<std::byte> staged;
    ops::for_each_run(part, buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kStaged) {
        const std::int64_t next = std::min(kStaged, count - done);
        staged.resize(static_cast<std::size_t>(next * size));
        fill({staged.data(), dtype, whole + done, next}, value.init, drawn_as, seed);
        buffers.write(value.name, (held + done) * size, staged);
      }
    });
    return;
  }
  std::byte* where = buffers.bytes(value.name);
  if (value.init.kind == Init::Kind::rope)
    return write_rope_table(reinterpret_cast<float*>(where), value.type.shape, value.init.frequencies);
  ops::for_each_run(part, buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
    fill({where + held * size, dtype, whole, count}, value.init, drawn_as, seed);
  });
}

// Elements [first, first + count) of a master in the weight's type, from where they are to where they go.
void copy_stretch(const Buffers& buffers, const std::string& master, const std::string& weight, std::int64_t first, std::int64_t to,
                  std::int64_t count) {
  const DType dtype = buffers.buffer(weight).type.dtype;
  const std::int64_t size = base::size_of(dtype);
  std::vector<float> read;
  std::vector<std::byte> made;
  const float* values = nullptr;
  if (buffers.on_disk(master)) {
    read.resize(static_cast<std::size_t>(count));
    buffers.read(master, first * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(std::span(read)));
    values = read.data();
  } else {
    values = buffers.view<float>(master, plan::Access::read).data() + first;
  }
  if (buffers.on_disk(weight)) made.resize(static_cast<std::size_t>(count * size));
  std::byte* copy = made.empty() ? buffers.bytes(weight) + to * size : made.data();
#pragma omp parallel for schedule(static)
  for (std::int64_t index = 0; index < count; ++index) store(copy, dtype, index, values[index]);
  if (!made.empty()) buffers.write(weight, to * size, made);
}

}  // namespace

std::vector<float> initial_values(const graph::Graph& graph, const graph::Parameter& parameter, std::uint64_t seed) {
  const graph::Value& weight = graph.values[parameter.weight];
  std::vector<float> values(static_cast<std::size_t>(weight.type.shape.elements()));
  const Stretch all{reinterpret_cast<std::byte*>(values.data()), DType::f32, 0, weight.type.shape.elements()};
  fill(all, weight.init, parameter.name, seed);
  return values;
}

void initialise(const graph::Graph& graph, executor::Executor& executor, const InitialValues& with) {
  const Buffers buffers(executor);
  for (const graph::Value& value : graph.values) {
    if (value.role == Role::computed || value.role == Role::input || value.role == Role::master || !buffers.has(value.name)) continue;
    if (value.role == Role::parameter && !with.parameters) continue;
    fill_held(buffers, value, value.name, with.seed);
  }
  // A master draws what its parameter would have drawn, unrounded.
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.master == parameter.weight || !with.parameters) continue;
    const graph::Value& master = graph.values[parameter.master];
    if (buffers.has(master.name)) fill_held(buffers, master, parameter.name, with.seed);
  }
  if (graph.scalars.valid()) *reinterpret_cast<ops::StepScalars*>(buffers.bytes("scalars")) = ops::StepScalars{};
}

void refresh_copies(const graph::Graph& graph, executor::Executor& executor, collectives::Group* sharing) {
  const Buffers buffers(executor);
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.master == parameter.weight) continue;
    const std::string& weight = graph.values[parameter.weight].name;
    const std::string& master = graph.values[parameter.master].name;
    if (!buffers.has(weight)) continue;  // another place of the pipe axis has it
    const DType dtype = buffers.buffer(weight).type.dtype;
    const ops::ElementRange from = buffers.held(master);
    const ops::ElementRange to = buffers.held(weight);
    const std::int64_t piece = buffers.on_disk(master) || buffers.on_disk(weight) ? kStaged : std::max<std::int64_t>(1, from.count());
    for (std::int64_t done = 0; done < from.count(); done += piece)
      copy_stretch(buffers, master, weight, done, from.begin - to.begin + done, std::min(piece, from.count() - done));
    const std::int64_t shard = buffers.part(master).shard;
    if (shard == 0 || buffers.part(weight).shard != 0) continue;
    // Each rank knows its own shard of a weight that all of them need whole.
    std::byte* copy = buffers.bytes(weight);
    const std::size_t bytes = static_cast<std::size_t>(shard * base::size_of(dtype));
    const std::span<std::byte> whole{copy, bytes * static_cast<std::size_t>(sharing->size())};
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(sharing->size()), shard);
    sharing->all_gather(whole.subspan(bytes * static_cast<std::size_t>(sharing->rank()), bytes), whole, counts, dtype);
  }
}

}  // namespace plimsoll::train
