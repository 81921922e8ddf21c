// Small training states for checkpoint tests: tensors whose bytes depend on the step, so that a mix of two shows.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/background_save.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"

namespace plimsoll::checkpoint {

using tests::MemoryFolder;

struct StateTensor {
  base::DType dtype = base::DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  bool operator==(const StateTensor&) const = default;
};

using State = std::map<std::string, StateTensor>;

inline StateTensor filled(base::DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed) {
  std::int64_t bytes = base::size_of(dtype);
  for (const std::int64_t extent : shape) bytes *= extent;
  std::mt19937_64 random(seed);
  StateTensor tensor{dtype, std::move(shape), std::vector<std::byte>(static_cast<std::size_t>(bytes))};
  for (std::byte& byte : tensor.data) byte = static_cast<std::byte>(random());
  return tensor;
}

// A few kilobytes: several blocks of 512 bytes, sizes that fill no whole block, a scalar and an empty tensor.
inline State state_at(std::int64_t step) {
  const auto seed = static_cast<std::uint64_t>(step) * 10;
  return {{"a.master", filled(base::DType::f32, {17, 9}, seed)},   {"a.moment1", filled(base::DType::bf16, {17, 9}, seed + 1)},
          {"b.master", filled(base::DType::f32, {300}, seed + 2)}, {"empty", filled(base::DType::f32, {0, 4}, seed + 3)},
          {"scalars", filled(base::DType::u8, {13}, seed + 4)},    {"step", filled(base::DType::i64, {}, seed + 5)}};
}

inline std::vector<TensorSource> sources_of(const State& state) {
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : state) sources.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  return sources;
}

inline std::vector<TensorTarget> targets_of(State& state) {
  std::vector<TensorTarget> targets;
  for (auto& [name, tensor] : state) targets.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  return targets;
}

inline SaveRequest request_at(std::int64_t step) {
  return {.identity = {"run-1", "c0ffee"}, .step = step, .state = base::Json::object({{"position", step * 1000}}), .block_bytes = 512};
}

inline SaveResult save_state(io::FileSystem& file_system, const io::Path& folder, std::int64_t step) {
  const State state = state_at(step);
  const std::vector<TensorSource> sources = sources_of(state);
  return save(file_system, folder, request_at(step), sources);
}

// As save_state, but beside an owner that overwrites each tensor as soon as it may.
inline SaveResult save_state_beside(io::FileSystem& file_system, const io::Path& folder, std::int64_t step) {
  State state = state_at(step);
  BackgroundSave saver(file_system, folder);
  saver.start(request_at(step), sources_of(state));
  std::size_t count = 0;
  for (auto& [name, tensor] : state) {
    saver.wait_until_read(++count);
    std::fill(tensor.data.begin(), tensor.data.end(), std::byte{0xEE});
  }
  return saver.collect(BackgroundSave::Wait::yes).value();
}

using SaveState = SaveResult (*)(io::FileSystem&, const io::Path&, std::int64_t);

inline State load_state(io::FileSystem& file_system, const Checkpoint& checkpoint) {
  State state = state_at(0);
  load(file_system, checkpoint, targets_of(state));
  return state;
}

// The step of the newest valid checkpoint, whose content is checked to be that step's and nothing else's; -1: none.
inline std::int64_t newest_step(io::FileSystem& file_system, const io::Path& folder) {
  const Search search = newest_valid(file_system, folder, {"run-1", "c0ffee"});
  if (!search.found) return -1;
  const std::int64_t step = search.found->manifest.step;
  const bool same =
      load_state(file_system, *search.found) == state_at(step) && search.found->manifest.state.at("position").as_integer() == step * 1000;
  return same ? step : -2;
}

inline std::vector<std::string> names_in(io::FileSystem& file_system, const io::Path& folder) {
  std::vector<std::string> names;
  for (const io::Entry& entry : file_system.list(folder)) names.push_back(entry.name);
  return names;
}

inline void overwrite(io::FileSystem& file_system, const io::Path& path, std::string_view content) {
  if (file_system.status(path)) file_system.remove(path);
  io::File file(file_system, path, io::OpenMode::create);
  file.write_at(0, io::as_bytes(content));
}

}  // namespace plimsoll::checkpoint
