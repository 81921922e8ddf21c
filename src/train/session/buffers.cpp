#include "train/session/buffers.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::train {

namespace {

using base::DType;

constexpr std::size_t kAlone = 16384;  // elements that one thread converts sooner than several begin

void store(std::byte* where, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32: reinterpret_cast<float*>(where)[index] = value; return;
    case DType::bf16: reinterpret_cast<std::uint16_t*>(where)[index] = base::bf16_from_f32(value); return;
    case DType::f16: reinterpret_cast<std::uint16_t*>(where)[index] = base::f16_from_f32(value); return;
    default: PLIMSOLL_CHECK(false, "values in {}", base::name_of(dtype));
  }
}

}  // namespace

Buffers::Buffers(executor::Executor& executor) : executor_(executor) {
  const plan::RankClass& rank_class = executor.rank_class();
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    const plan::Buffer& known = rank_class.buffers[plan::BufferId{index}];
    if (known.persistent()) {
      by_name_[known.name] = plan::BufferId{index};
    } else if (known.kind == plan::BufferKind::input || known.kind == plan::BufferKind::result ||
               known.kind == plan::BufferKind::gradient) {
      by_name_[rank_class.programs[static_cast<std::size_t>(known.program)].name + "/" + known.name] = plan::BufferId{index};
    }
  }
}

void Buffers::put(const std::string& name, std::int64_t first, std::span<const float> values) const {
  const base::DType dtype = buffer(name).type.dtype;
  const std::int64_t size = base::size_of(dtype);
  const bool here = in_host_memory(name);
  std::vector<std::byte> made(here ? 0 : values.size() * static_cast<std::size_t>(size));
  std::byte* where = here ? bytes(name) + first * size : made.data();
#pragma omp parallel for schedule(static) if (values.size() > kAlone)
  for (std::int64_t index = 0; index < std::ssize(values); ++index) store(where, dtype, index, values[static_cast<std::size_t>(index)]);
  if (!here) write(name, first * size, made);
}

plan::BufferId Buffers::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  PLIMSOLL_CHECK(found != by_name_.end(), "the plan has no buffer {}", name);
  return found->second;
}

const plan::Buffer& Buffers::buffer(const std::string& name) const { return executor_.rank_class().buffers[find(name)]; }

std::byte* Buffers::bytes(const std::string& name, plan::Access access) const { return executor_.host_view(find(name), access); }

std::vector<std::byte> Buffers::copy(const std::string& name) const {
  std::vector<std::byte> all(static_cast<std::size_t>(buffer(name).type.bytes()));
  read(name, 0, all);
  return all;
}

ops::Part Buffers::part(const std::string& name) const {
  const plan::BufferId id = find(name);
  const plan::RankClass& rank_class = executor_.rank_class();
  if (const ops::Part part = rank_class.part_of(id); part != ops::Part{}) return part;
  const base::Shape& shape = rank_class.buffers[id].type.shape;
  return {.whole = shape, .slice = shape};
}

std::vector<std::string> Buffers::holding(const std::string& tensor) const {
  if (has(tensor)) return {tensor};
  std::vector<std::string> tiles;
  for (std::string name = tile_buffer(tensor, 0); has(name); name = tile_buffer(tensor, tiles.size())) tiles.push_back(name);
  return tiles;
}

std::string tile_buffer(std::string_view tensor, std::size_t tile) { return fmt::format("{}#{}", tensor, tile); }

std::string tensor_of_buffer(std::string_view buffer) { return std::string(buffer.substr(0, buffer.find('#'))); }

std::string program_buffer(std::string_view program, std::string_view value, std::int32_t micro_batch) {
  return fmt::format("{}/{}@{}", program, value, micro_batch);
}

}  // namespace plimsoll::train
