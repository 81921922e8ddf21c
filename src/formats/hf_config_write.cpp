// The writing half of hf_config.h: the keys that we know, laid over what was read.
#include <optional>
#include <string_view>

#include "base/error.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

using base::Json;
using model::Model;

std::string_view torch_name(FileDType dtype) {
  switch (dtype) {
    case FileDType::f32: return "float32";
    case FileDType::bf16: return "bfloat16";
    case FileDType::f16: return "float16";
    case FileDType::f64: return "float64";
    default: break;
  }
  PLIMSOLL_CHECK(false, "weights stored as {}", name_of(dtype));
}

void set_model(const HfKind& kind, const Model& model, Json& config) {
  config.set("model_type", kind.kind->type);
  config.set("vocab_size", model.vocab);
  config.set("tie_word_embeddings", model.tied);
  config.set("initializer_range", model.init_std);
  kind.files().write(kind.kind->type, model, config);
}

std::optional<Model> described_by(const Json& config) {
  if (!config.is_object()) return std::nullopt;
  try {
    return model_from_hf_config(config);
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

// Only where the file is new.
void set_special_tokens(const HfKind& kind, const Model& model, const HfEnds& ends, Json& config) {
  const auto usual = kind.files().usual_ends;
  if (!ends.begin && !ends.end && usual != nullptr && usual(model, config)) return;
  const auto id = [](const std::optional<std::int32_t>& token) { return token ? Json(*token) : Json(); };
  config.set("bos_token_id", id(ends.begin));
  config.set("eos_token_id", id(ends.end));
}

}  // namespace

Json hf_config_from_model(const Model& model, const Json& original, FileDType dtype, const HfEnds& ends) {
  const HfKind kind = hf_kind_for(model, original);
  Json config = original.is_object() ? original : Json::object();
  config.set("architectures", Json::array({Json(kind.kind->architecture)}));
  if (described_by(original) != model) set_model(kind, model, config);
  if (!original.is_object()) set_special_tokens(kind, model, ends, config);
  // transformers 5 writes "dtype" and reads both; 4 mostly knows the other.
  config.set(config.find("dtype") ? "dtype" : "torch_dtype", torch_name(dtype));
  return config;
}

void write_hf_config(io::FileSystem& file_system, const io::Path& folder, const Json& config) {
  io::replace_file(file_system, folder / "config.json", io::as_bytes(base::write_json(config, base::JsonLayout::pretty) + "\n"));
}

}  // namespace plimsoll::formats
