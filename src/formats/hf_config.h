// Hugging Face's config.json to our description of a model and back.
//
// Read: GPT-2, Llama, Mistral, Qwen2, Qwen3 and BERT, in the spellings of transformers 4 (rope_theta, rope_scaling,
// torch_dtype) and 5 (rope_parameters, dtype). Settings that would change the mathematics in a way we do not compute are
// refused by name; a setting that nobody asks about is kept for the way back.
//
// Written: onto the configuration that was read, where there is one, so that what we do not know comes out as it went
// in; one that already says what the model is stays as it is, to the key.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "formats/file_dtype.h"
#include "io/file_system.h"
#include "model/model.h"

namespace plimsoll::formats {

// The tokens that transformers puts before a text, and takes for its end.
struct HfEnds {
  std::optional<std::int32_t> begin = {};
  std::optional<std::int32_t> end = {};
};

base::Json read_hf_config_json(io::FileSystem& file_system, const io::Path& folder);
model::Model model_from_hf_config(const base::Json& config);
model::Model read_hf_config(io::FileSystem& file_system, const io::Path& folder);

// `original` is null for a model that did not come from such a file; only then do `ends` count. `dtype` is what the weights are stored as.
base::Json hf_config_from_model(const model::Model& model, const base::Json& original, FileDType dtype, const HfEnds& ends = {});
void write_hf_config(io::FileSystem& file_system, const io::Path& folder, const base::Json& config);

}  // namespace plimsoll::formats
