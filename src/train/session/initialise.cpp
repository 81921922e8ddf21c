#include "train/session/initialise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/random.h"
#include "ops/step_scalars.h"
#include "train/session/buffers.h"
#include "train/session/low_halves.h"
#include "train/session/pieces.h"

namespace plimsoll::train {

namespace {

using base::DType;
using graph::Init;

// What goes to or comes from a drive is in memory so many elements at a time.
constexpr std::int64_t kStaged = std::int64_t{1} << 20;

// Elements [first, first + size) of a whole tensor. Elements 4j .. 4j+3 come from block j: words 0 and 1 give the first two, words 2 and
// 3 the others.
void draw_normal(std::span<float> to, std::int64_t first, double std, base::RandomKey key) {
  const std::int64_t end = first + std::ssize(to);
#pragma omp parallel for schedule(static)
  for (std::int64_t block = first / 4; block < (end + 3) / 4; ++block) {
    const auto index = static_cast<std::uint64_t>(block);
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
    const std::array<float, 2> low = base::normal_from_bits(bits[0], bits[1]);
    const std::array<float, 2> high = base::normal_from_bits(bits[2], bits[3]);
    const std::array<float, 4> values{low[0], low[1], high[0], high[1]};
    for (std::int64_t element = std::max(4 * block, first); element < std::min(4 * block + 4, end); ++element)
      to[static_cast<std::size_t>(element - first)] = static_cast<float>(std) * values[static_cast<std::size_t>(element - 4 * block)];
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

void fill(std::span<float> to, std::int64_t first, const Init& init, const std::string& name, std::uint64_t seed) {
  switch (init.kind) {
    case Init::Kind::none:
    case Init::Kind::zeros: std::fill(to.begin(), to.end(), 0.0f); return;
    case Init::Kind::ones: std::fill(to.begin(), to.end(), 1.0f); return;
    case Init::Kind::normal: draw_normal(to, first, init.std, base::random_key(seed, base::hash_name(name))); return;
    case Init::Kind::rope: PLIMSOLL_CHECK(false, "a rotary table in parts");
  }
}

// Fills what this rank holds of a value as the whole would be filled, in all buffers that hold the same part of it: a weight and its
// master are drawn once. Arenas hold zeros at first, so padding and what starts at zero are left alone: a gigabyte of moments is touched
// by the first update, not before.
void fill_held(const Buffers& buffers, const graph::Value& value, const std::vector<std::string>& names, const std::string& drawn_as,
               std::uint64_t seed) {
  if (value.init.kind == Init::Kind::zeros || value.init.kind == Init::Kind::none) return;
  if (value.init.kind == Init::Kind::rope)
    return write_rope_table(reinterpret_cast<float*>(buffers.bytes(value.name)), value.type.shape, value.init.frequencies);
  const bool straight = names.size() == 1 && buffers.in_host_memory(names[0]) && buffers.buffer(names[0]).type.dtype == DType::f32;
  std::vector<float> values;
  ops::for_each_run(buffers.part(names[0]), buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
    if (straight) {
      auto* where = reinterpret_cast<float*>(buffers.bytes(names[0])) + held;
      return fill({where, static_cast<std::size_t>(count)}, whole, value.init, drawn_as, seed);
    }
    for (std::int64_t done = 0; done < count; done += kStaged) {
      values.resize(static_cast<std::size_t>(std::min(kStaged, count - done)));
      fill(values, whole + done, value.init, drawn_as, seed);
      for (const std::string& name : names) buffers.put(name, held + done, values);
    }
  });
}

// What a split weight leaves out of what it draws.
void fill_low_halves(const Buffers& buffers, const graph::Graph& graph, const graph::Parameter& parameter, std::uint64_t seed) {
  const Init& init = graph.values[parameter.weight].init;
  const std::optional<graph::LowHalves> halves = graph::low_halves(graph, parameter);
  if (!halves || init.kind != Init::Kind::normal) return;  // zeros and ones have nothing below
  const std::vector<std::string> low = buffers.holding(graph.values[halves->low].name);
  const std::vector<std::string> v = buffers.holding(graph.values[halves->v].name);
  std::vector<float> values;
  for (std::size_t tile = 0; tile < low.size(); ++tile) {
    ops::for_each_run(buffers.part(low[tile]), buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kStaged) {
        values.resize(static_cast<std::size_t>(std::min(kStaged, count - done)));
        fill(values, whole + done, init, parameter.name, seed);
        put_low_halves(buffers, {low[tile], v[tile]}, held + done, values);
      }
    });
  }
}

// Elements [first, first + count) of a master in the weight's type, from where they are to where they go.
void copy_stretch(const Buffers& buffers, const std::string& master, const std::string& weight, std::int64_t first, std::int64_t to,
                  std::int64_t count) {
  std::vector<float> read;
  const DType dtype = buffers.buffer(master).type.dtype;
  if (dtype != DType::f32) {  // it has the weight's type
    std::vector<std::byte> made(static_cast<std::size_t>(count * base::size_of(dtype)));
    buffers.read(master, first * base::size_of(dtype), made);
    return buffers.write(weight, to * base::size_of(dtype), made);
  }
  const float* values = nullptr;
  if (buffers.on_disk(master)) {
    read.resize(static_cast<std::size_t>(count));
    buffers.read(master, first * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(std::span(read)));
    values = read.data();
  } else {
    values = buffers.view<float>(master, plan::Access::read).data() + first;
  }
  buffers.put(weight, to, {values, static_cast<std::size_t>(count)});
}

// A weight from what this rank has of its master, and from other ranks where they have the rest.
void refresh_copy(const Buffers& buffers, const std::string& master, const std::string& weight, collectives::Group* sharing) {
  const DType dtype = buffers.buffer(weight).type.dtype;
  const ops::ElementRange from = buffers.held(master);
  const ops::ElementRange to = buffers.held(weight);
  const std::int64_t piece = buffers.on_disk(master) || !buffers.in_host_memory(weight) ? kStaged : std::max<std::int64_t>(1, from.count());
  for (std::int64_t done = 0; done < from.count(); done += piece)
    copy_stretch(buffers, master, weight, done, from.begin - to.begin + done, std::min(piece, from.count() - done));
  const std::int64_t shard = buffers.part(master).shard;
  if (shard == 0 || buffers.part(weight).shard != 0) return;
  // Each rank knows its own shard of a weight that all of them need whole.
  std::byte* copy = buffers.bytes(weight);
  const std::size_t bytes = static_cast<std::size_t>(shard * base::size_of(dtype));
  const std::span<std::byte> whole{copy, bytes * static_cast<std::size_t>(sharing->size())};
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(sharing->size()), shard);
  sharing->all_gather(whole.subspan(bytes * static_cast<std::size_t>(sharing->rank()), bytes), whole, counts, dtype);
}

}  // namespace

void initial_values(const graph::Graph& graph, const graph::Parameter& parameter, std::uint64_t seed, std::int64_t first,
                    std::span<float> out) {
  fill(out, first, graph.values[parameter.weight].init, parameter.name, seed);
}

void initialise(const graph::Graph& graph, executor::Executor& executor, const InitialValues& with) {
  const Buffers buffers(executor);
  std::set<graph::ValueId> drawn;  // below, by their parameters' names
  for (const graph::Parameter& parameter : graph.parameters) drawn.insert({parameter.weight, parameter.master});
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    const graph::Value& value = graph.values[graph::ValueId{index}];
    if (value.init.kind == Init::Kind::none || drawn.contains(graph::ValueId{index})) continue;
    for (const std::string& name : buffers.holding(value.name)) fill_held(buffers, value, {name}, value.name, with.seed);
  }
  for (const plan::Buffer& buffer : executor.rank_class().buffers) {
    if (buffer.persistent() && buffer.state.start != 0.0f)
      buffers.put(buffer.name, 0, std::vector<float>(static_cast<std::size_t>(buffer.type.shape.elements()), buffer.state.start));
  }
  // A master draws what its parameter would have drawn, unrounded.
  for (const graph::Parameter& parameter : graph.parameters) {
    if (!with.parameters) break;
    const graph::Value& weight = graph.values[parameter.weight];
    const graph::Value& master = graph.values[parameter.master];
    const std::vector<std::string> masters =
        parameter.master != parameter.weight ? buffers.holding(master.name) : std::vector<std::string>{};
    const std::vector<std::string> weights = buffers.holding(weight.name);
    if (parameter.stored) {
      const std::int64_t columns = parameter.stored->decoded.shape[-1];
      write_stored(buffers, weights, *parameter.stored,
                   [&](std::int64_t row, std::span<float> values) { fill(values, row * columns, weight.init, parameter.name, with.seed); });
      continue;
    }
    for (std::size_t tile = 0; tile < std::max(masters.size(), weights.size()); ++tile) {
      std::vector<std::string> names;
      if (tile < masters.size()) names.push_back(masters[tile]);
      const bool alike = tile < weights.size() && (names.empty() || buffers.part(names[0]) == buffers.part(weights[tile]));
      if (alike) names.push_back(weights[tile]);
      if (!names.empty()) fill_held(buffers, weight, names, parameter.name, with.seed);
      if (!alike && tile < weights.size()) fill_held(buffers, weight, {weights[tile]}, parameter.name, with.seed);
    }
    fill_low_halves(buffers, graph, parameter, with.seed);
  }
  if (graph.scalars.valid()) *reinterpret_cast<ops::StepScalars*>(buffers.bytes("scalars")) = ops::StepScalars{};
}

void refresh_copies(const graph::Graph& graph, executor::Executor& executor, collectives::Group* sharing) {
  const Buffers buffers(executor);
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.master == parameter.weight) continue;
    const std::vector<std::string> weights =
        buffers.holding(graph.values[parameter.weight].name);  // of another place of the pipe axis: none
    const std::vector<std::string> masters = buffers.holding(graph.values[parameter.master].name);
    for (std::size_t tile = 0; tile < weights.size(); ++tile) refresh_copy(buffers, masters[tile], weights[tile], sharing);
  }
}

}  // namespace plimsoll::train
