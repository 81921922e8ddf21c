// The tensors that the map lists are those that the graph declares, and packed rows lie where the kernels expect them.
#include "formats/hf_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "families/families.h"
#include "formats_safetensors/golden_models.h"
#include "ops/attributes.h"

namespace plimsoll::formats {
namespace {

std::map<std::string, std::vector<std::int64_t>> declared_by_graph(const model::Model& model) {
  graph::BuildOptions options;
  options.micro_batch = {.samples = 1, .sequence = 4};
  graph::Builder builder(options);
  families::build_forward(model, builder);
  const graph::Graph graph = std::move(builder).finish();
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const graph::Parameter& parameter : graph.parameters) {
    const auto dims = graph.values[parameter.weight].type.shape.dims();
    shapes[parameter.name] = {dims.begin(), dims.end()};
  }
  return shapes;
}

TEST(HfNames, ListsWhatTheGraphDeclares) {
  io::PosixFileSystem disk;
  int models = 0;
  for (const io::Path& path : golden_folders(disk)) {
    const HfDirectory folder = open_golden(disk, path);
    std::map<std::string, std::vector<std::int64_t>> listed;
    for (const HfTensor& tensor : folder.tensors()) listed[tensor.name] = tensor.shape;
    EXPECT_EQ(listed, declared_by_graph(folder.model())) << path;
    ++models;
  }
  EXPECT_EQ(models, 12);
  for (const std::string& name : families::preset_names()) {
    const model::Model model = *families::preset(name);
    if (model.layers > 16) continue;
    std::map<std::string, std::vector<std::int64_t>> listed;
    const HfNames names = hf_names(model);
    for (const HfTensor& tensor : names.tensors) listed[tensor.name] = tensor.shape;
    EXPECT_EQ(listed, declared_by_graph(model)) << name;
  }
}

TEST(HfNames, EveryRowOnBothSidesIsUsedOnce) {
  io::PosixFileSystem disk;
  for (const io::Path& path : golden_folders(disk)) {
    const HfDirectory folder = open_golden(disk, path);
    for (const HfTensor& tensor : folder.tensors()) {
      std::set<std::int64_t> ours;
      for (const HfPart& part : tensor.parts) {
        std::set<std::int64_t> theirs;
        for (const RowRun& run : part.rows) {
          for (std::int64_t i = 0; i < run.count; ++i) {
            EXPECT_TRUE(ours.insert(run.ours + i * run.step).second) << tensor.name;
            EXPECT_TRUE(theirs.insert(run.theirs + i).second) << part.name;
          }
        }
        const std::int64_t rows = part.transposed ? part.shape[1] : part.shape[0];
        EXPECT_EQ(std::ssize(theirs), rows) << part.name;
        EXPECT_TRUE(theirs.empty() || *theirs.rbegin() == rows - 1) << part.name;
      }
      EXPECT_EQ(std::ssize(ours), tensor.shape[0]) << tensor.name;
      EXPECT_TRUE(ours.empty() || *ours.rbegin() == tensor.shape[0] - 1) << tensor.name;
    }
  }
}

// families/file_names.h states the packed layouts by itself; this holds it and attention together.
TEST(HfNames, PackedHeadsLieWhereAttentionLooks) {
  model::Model model = families::defaults(families::llama());
  model.layers = 1;
  model.heads = 6;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.width = 24;
  const ops::Heads heads{.query = 6, .kv = 2, .dim = 4};
  const HfNames names = hf_names(model);
  const auto is_qkv = [](const HfTensor& tensor) { return tensor.name == "blocks.0.attention.qkv.weight"; };
  const auto& qkv = *std::find_if(names.tensors.begin(), names.tensors.end(), is_qkv);
  ASSERT_EQ(qkv.parts.size(), 3u);
  const auto ours_of = [](const HfPart& part, std::int64_t theirs) {
    for (const RowRun& run : part.rows) {
      if (theirs >= run.theirs && theirs < run.theirs + run.count) return run.ours + (theirs - run.theirs) * run.step;
    }
    return std::int64_t{-1};
  };
  for (std::int64_t head = 0; head < 6; ++head) EXPECT_EQ(ours_of(qkv.parts[0], head * 4 + 3), heads.query_offset(head) + 3);
  for (std::int64_t head = 0; head < 2; ++head) {
    EXPECT_EQ(ours_of(qkv.parts[1], head * 4 + 1), heads.key_offset(head) + 1);
    EXPECT_EQ(ours_of(qkv.parts[2], head * 4), heads.value_offset(head));
  }
}

TEST(HfNames, RowsOfGoldenTensorsArrive) {
  io::PosixFileSystem disk;
  const HfDirectory gpt2 = golden_model(disk, "gpt2-tiny");  // width 32, 4 heads of 8: c_attn is (32, 96)
  const std::vector<float> fused = to_f32(gpt2.weights().at("transformer.h.1.attn.c_attn.weight"));
  const std::vector<float> packed = load(gpt2, "blocks.1.attention.qkv.weight");
  for (std::int64_t in = 0; in < 32; ++in) {
    for (std::int64_t dim = 0; dim < 8; ++dim) {
      const auto ours = [&](std::int64_t row) { return packed[static_cast<std::size_t>(row * 32 + in)]; };
      const auto theirs = [&](std::int64_t column) { return fused[static_cast<std::size_t>(in * 96 + column)]; };
      EXPECT_EQ(ours(2 * 24 + dim), theirs(2 * 8 + dim));           // query of head 2
      EXPECT_EQ(ours(2 * 24 + 8 + dim), theirs(32 + 2 * 8 + dim));  // its key
      EXPECT_EQ(ours(2 * 24 + 16 + dim), theirs(64 + 2 * 8 + dim));
    }
  }
  const HfDirectory llama = golden_model(disk, "llama-tiny");  // width 32, ffn 56
  const std::vector<float> gate = to_f32(llama.weights().at("model.layers.0.mlp.gate_proj.weight"));
  const std::vector<float> up = to_f32(llama.weights().at("model.layers.0.mlp.up_proj.weight"));
  const std::vector<float> both = load(llama, "blocks.0.ffn.up.weight");
  for (std::size_t row = 0; row < 56; ++row) {
    for (std::size_t in = 0; in < 32; ++in) {
      EXPECT_EQ(both[2 * row * 32 + in], gate[row * 32 + in]);
      EXPECT_EQ(both[(2 * row + 1) * 32 + in], up[row * 32 + in]);
    }
  }
}

}  // namespace
}  // namespace plimsoll::formats
