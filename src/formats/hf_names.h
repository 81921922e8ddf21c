// Which Hugging Face tensors make up each of ours, for the three families: names and rows as data.
//
// Our tensors are what the graph declares (`blocks.0.attention.qkv.weight`), linear weights as (out, in). Two of them
// are packed, by a rule that the kernels rely on:
//
//   attention.qkv   for each key-value head in turn: its heads / kv_heads query heads, its key, its value, head_dim rows
//                   each. So tensor parallelism may cut between any two groups.
//   ffn.up (llama)  gate row 0, up row 0, gate row 1, up row 1, ...: what is multiplied together lies side by side.
//
// A Hugging Face tensor may be stored (in, out), as GPT-2's are; then its columns count as its rows here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/model.h"

namespace plimsoll::formats {

// Row `ours + i * step` of our tensor is row `theirs + i` of the Hugging Face tensor, for 0 <= i < count.
struct RowRun {
  std::int64_t ours = 0;
  std::int64_t theirs = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
};

// One Hugging Face tensor and where its rows go. The runs of a part cover all of it.
struct HfPart {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<RowRun> rows;
  bool transposed = false;
  std::vector<std::string> aliases = {};  // older names, accepted when `name` is not there
  std::vector<std::string> copies = {};   // names under which the same tensor is written again; see HfPassenger
  std::string instead = {};               // the name of what transformers computes with where the files hold it beside `name`
};

// A tensor that files hold beside the one that transformers computes with, with other values: nobody computes with it, and it comes out as
// it went in. So does BERT's `cls.predictions.bias` where `cls.predictions.decoder.bias` differs.
struct HfPassenger {
  std::string name;
  std::vector<float> values;
};

struct HfTensor {
  std::string name;  // ours
  std::vector<std::int64_t> shape;
  std::vector<HfPart> parts;
  bool optional = false;  // a model without its head may lack it
};

struct HfNames {
  std::vector<HfTensor> tensors;
  // (name, original): files may hold the first beside the second; it must then be equal to it.
  std::vector<std::pair<std::string, std::string>> tied;
};

// `bare`: the base model was saved without the head around it, hence without the prefix `transformer.`, `model.` or `bert.`.
HfNames hf_names(const model::Model& model, bool bare = false);

// The prefix that tensors of the base model have unless it is bare.
std::string_view hf_prefix(model::Family family);

// Tensors that files hold but that no training needs: masks, position tables, rotary frequencies, BERT's pooler and
// next-sentence head. `name` is without the prefix.
bool is_known_buffer(model::Family family, std::string_view name);

}  // namespace plimsoll::formats
