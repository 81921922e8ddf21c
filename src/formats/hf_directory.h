// A Hugging Face model folder (config.json and safetensors), read as our model and our tensors, and written from them.
//
// Opening checks everything: each of our tensors can be made from tensors of the right shape and type, and no tensor is
// left over. After that, load() fills one of ours, or some of its rows, straight from the mapped file into the caller's memory.
//
//   const HfDirectory folder = HfDirectory::open(file_system, "gpt2/");
//   for (const HfTensor& tensor : folder.tensors()) folder.load(tensor.name, 0, memory_of(tensor.name));
//
//   export_hf(file_system, "out/", {.model = folder.model()}, [&](auto name, auto row, auto rows) { folder.load(name, row, rows); });
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/hf_config.h"
#include "formats/hf_names.h"
#include "formats/safetensors_set.h"
#include "model/model.h"

namespace plimsoll::formats {

class HfDirectory {
 public:
  // `weights`: a safetensors file or index, where it is not the one that the folder's names give away.
  static HfDirectory open(io::FileSystem& file_system, const io::Path& folder, const io::Path& weights = {});

  const model::Model& model() const { return model_; }
  const base::Json& config() const { return config_; }
  // Ids after which a text is over: those of generation_config.json, or else of config.json.
  const std::vector<std::int64_t>& end_tokens() const { return end_tokens_; }
  const SafetensorsSet& weights() const { return weights_; }
  const std::vector<HfTensor>& tensors() const { return names_.tensors; }  // ours, in the graph's order

  // Whether the files hold our tensor. All are there but the head of a model that was saved without one.
  bool holds(std::string_view ours) const;
  std::vector<std::string> absent() const;

  // What the files hold and nobody computes with, where that is not the same tensor again.
  std::vector<HfPassenger> passengers() const;

  // Fills `out` with rows of our tensor from `first_row` on. Calls may run side by side.
  void load(std::string_view ours, std::int64_t first_row, std::span<float> out) const;

 private:
  HfDirectory(base::Json config, SafetensorsSet weights);
  void match_tensors();
  void check_leftovers() const;
  const TensorView* find_part(const HfPart& part) const;

  base::Json config_;
  std::vector<std::int64_t> end_tokens_;
  model::Model model_;
  SafetensorsSet weights_;
  HfNames names_;
  std::map<std::string, std::size_t, std::less<>> present_;  // ours to index in names_.tensors
};

// Files of a model folder beside configuration and weights, the tokenizer's above all: name and content.
using HfCompanions = std::vector<std::pair<std::string, std::string>>;
HfCompanions read_companions(io::FileSystem& file_system, const io::Path& folder);

inline constexpr std::string_view kGenerationConfig = "generation_config.json";

struct HfExport {
  model::Model model;
  base::Json config = {};  // the one that the model came from, if any: what we do not know in it is kept
  FileDType dtype = FileDType::f32;
  std::int64_t max_shard_bytes = 5'000'000'000;
  HfCompanions companions = {};  // go along
  std::vector<HfPassenger> passengers = {};
  HfEnds ends = {};  // where no configuration says which
};

// Fills `out` with rows of our tensor of that name, in f32, from `first_row` on.
using TensorProvider = std::function<void(std::string_view ours, std::int64_t first_row, std::span<float> out)>;

// Writes beside and renames, so that `folder` is whole or not there. It must not exist, or be empty.
void export_hf(io::FileSystem& file_system, const io::Path& folder, const HfExport& request, const TensorProvider& provider);

}  // namespace plimsoll::formats
