#include "families/file_config.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::families {

using base::Json;
using model::ActivationKind;

namespace {

// Largest believable values, far above any real model: they keep every product of sizes within 64 bits.
constexpr std::pair<std::string_view, int> kLargestPowers[] = {{"vocab_size", 26},
                                                               {"n_positions", 30},
                                                               {"max_position_embeddings", 30},
                                                               {"original_max_position_embeddings", 30},
                                                               {"sliding_window", 30},
                                                               {"hidden_size", 18},
                                                               {"n_embd", 18},
                                                               {"intermediate_size", 22},
                                                               {"n_inner", 22}};
constexpr int kLargestPower = 12;  // layers, heads, head size, token types

}  // namespace

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = json_.find(key);
  return value && !value->is_null() ? value : nullptr;
}

std::int64_t ConfigReader::count(std::string_view key) const {
  if (!find(key)) base::bad_input("{}: \"{}\" is missing, without which the model's size is not known", json_.where(), key);
  return count(key, 0);
}

std::int64_t ConfigReader::count(std::string_view key, std::int64_t otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  int power = kLargestPower;
  for (const auto& [name, larger] : kLargestPowers) power = name == key ? larger : power;
  const std::int64_t count = value->as_integer();
  if (count < 1 || count > std::int64_t{1} << power) value->fail_expected(fmt::format("a number from 1 to {}", std::int64_t{1} << power));
  return count;
}

std::int64_t ConfigReader::pad_token(std::int64_t vocab, std::int64_t otherwise) const {
  const Json* value = json_.find("pad_token_id");
  if (value == nullptr) return otherwise < vocab ? otherwise : -1;
  if (value->is_null()) return -1;
  const std::int64_t id = value->as_integer();
  if (id < -vocab || id >= vocab) value->fail_expected(fmt::format("a token of {}, or null", vocab));
  return id < 0 ? vocab + id : id;
}

void ConfigReader::require(std::string_view key, bool value, std::string_view why) const {
  if (flag(key, value) != value)
    base::bad_input("{}: \"{}\" is {}; Plimsoll computes {} only with {}", find(key)->where(), key, !value, why, value);
}

ActivationKind ConfigReader::activation(std::string_view key, std::string_view otherwise) const {
  const std::string name = text(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return ActivationKind::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return ActivationKind::gelu_erf;
  if (name == "relu") return ActivationKind::relu;
  if (name == "silu" || name == "swish") return ActivationKind::silu;
  find(key)->fail_expected("an activation that Plimsoll computes: gelu, gelu_new, gelu_pytorch_tanh, relu or silu");
}

std::int64_t head_dim_in(const Json& config, const model::Model& model) {
  if (model.width % model.heads != 0)
    base::bad_input("{}: a width of {} does not divide into {} heads", config.where(), model.width, model.heads);
  return model.width / model.heads;
}

std::string_view file_name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu_tanh: return "gelu_new";
    case ActivationKind::gelu_erf: return "gelu";
    case ActivationKind::relu: return "relu";
    case ActivationKind::silu: return "silu";
  }
  return "?";
}

void set_common_keys(const model::Model& model, Json& config) {
  config.set("num_hidden_layers", model.layers);
  config.set("hidden_size", model.width);
  config.set("num_attention_heads", model.heads);
  config.set("intermediate_size", model.ffn);
  config.set("max_position_embeddings", model.context);
  config.set("hidden_act", file_name_of(model.activation));
  config.set("pad_token_id", model.pad_token >= 0 ? Json(model.pad_token) : Json());
}

}  // namespace plimsoll::families
