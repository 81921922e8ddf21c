// The fields of "model": which description to start from, then what may be changed of it.
#include "config/fields.h"

namespace plimsoll::config {

namespace {

// Bounds that keep every product of two or three sizes within 64 bits.
constexpr double kMostLayers = 1e5;
constexpr double kMostWidth = 1e6;

Field preset_field() {
  Field field{.key = "model.preset",
              .about = "A ready-made model; `\"model\": \"gpt2\"` is short for it. The other keys change it.",
              .choices = model::preset_names(),
              .takes_text = true};
  field.expects = expects_choice(field.choices);
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string() || !model::preset(value.as_string())) return false;
    run.preset = value.as_string();
    return true;
  };
  field.write = [](const Run& run) { return run.preset.empty() ? base::Json() : base::Json(run.preset); };
  return field;
}

Field path_field() {
  Field field{.key = "model.path",
              .about = "A Hugging Face directory: its config.json describes the model, its weights are the initial ones.",
              .expects = "a path",
              .takes_text = true};
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string() || value.as_string().empty() || value.as_string().find('\0') != std::string::npos) return false;
    run.model_path = value.as_string();
    return true;
  };
  field.write = [](const Run& run) { return run.model_path.empty() ? base::Json() : base::Json(run.model_path); };
  return field;
}

std::vector<Field> rope_fields() {
  std::vector<Field> list;
  list.push_back(number_field("model.rope.theta", PLIMSOLL_AT(model.rope.theta), above(0.0), "Base of the rotary wavelengths."));
  list.push_back(choice_field("model.rope.scaling", PLIMSOLL_AT(model.rope.scaling),
                              "How positions beyond the original context are scaled: not, all alike, or long wavelengths only."));
  list.push_back(number_field("model.rope.factor", PLIMSOLL_AT(model.rope.factor), above(0.0), "Factor of the scaling."));
  list.push_back(number_field("model.rope.low_frequency_factor", PLIMSOLL_AT(model.rope.low_frequency_factor), above(0.0),
                              "llama3 scaling: wavelengths above original_context / this are scaled fully."));
  list.push_back(number_field("model.rope.high_frequency_factor", PLIMSOLL_AT(model.rope.high_frequency_factor), above(0.0),
                              "llama3 scaling: wavelengths below original_context / this stay as they are."));
  list.push_back(number_field("model.rope.original_context", PLIMSOLL_AT(model.rope.original_context), count_from(1, kMostTokens),
                              "llama3 scaling: the context the model was first trained for."));
  for (Field& field : list) field.families = Families::llama;
  return list;
}

std::vector<Field> size_fields() {
  return {
      number_field("model.layers", PLIMSOLL_AT(model.layers), count_from(1, kMostLayers), "Blocks."),
      number_field("model.width", PLIMSOLL_AT(model.width), count_from(1, kMostWidth), "Size of a token's hidden state."),
      number_field("model.heads", PLIMSOLL_AT(model.heads), count_from(1, kMostWidth), "Attention heads."),
      number_field("model.kv_heads", PLIMSOLL_AT(model.kv_heads), count_from(1, kMostWidth),
                   "Heads of keys and values; fewer than `heads` is grouped-query attention.")
          .derived_from("heads"),
      number_field("model.head_dim", PLIMSOLL_AT(model.head_dim), count_from(1, kMostWidth), "Size of a head.")
          .derived_from("width / heads"),
      number_field("model.ffn", PLIMSOLL_AT(model.ffn), count_from(1, kMostWidth * 10), "Inner width of the feed-forward part.")
          .derived_from("4 x width; llama: 8/3 x width, rounded up to a multiple of 256"),
      number_field("model.context", PLIMSOLL_AT(model.context), count_from(1, kMostTokens), "Longest sequence."),
      number_field("model.vocab", PLIMSOLL_AT(model.vocab), count_from(1, kMostTokens), "Number of tokens.")
          .derived_from("the tokenizer's where data.tokenizer is given, else the preset's; gpt2: `50257`, llama: `32000`, bert: `30522`"),
      flag_field("model.tied", PLIMSOLL_AT(model.tied), "The head uses the token embedding."),
  };
}

std::vector<Field> detail_fields() {
  return {
      number_field("model.dropout", PLIMSOLL_AT(model.dropout), rate(), "Dropout after attention and feed-forward.")
          .with_families(Families::gpt2_bert),
      number_field("model.attention_dropout", PLIMSOLL_AT(model.attention_dropout), rate(), "Dropout of attention weights.")
          .with_families(Families::gpt2_bert)
          .derived_from("dropout"),
      number_field("model.embedding_dropout", PLIMSOLL_AT(model.embedding_dropout), rate(), "Dropout of the embedding.")
          .with_families(Families::gpt2_bert)
          .derived_from("dropout"),
      number_field("model.norm_eps", PLIMSOLL_AT(model.norm_eps), above(0.0), "Added to the variance in norms."),
      choice_field("model.activation", PLIMSOLL_AT(model.activation), "Of the feed-forward part."),
      number_field("model.init_std", PLIMSOLL_AT(model.init_std), at_least(0.0), "Standard deviation of initial weights."),
      number_field("model.pad_token", PLIMSOLL_AT(model.pad_token), count_from(-1, kMostTokens),
                   "Token that fills up sequences: looking it up trains nothing, as in transformers; -1 = none.")
          .with_families(Families::llama_bert)
          .derived_from("the tokenizer's, else `-1`"),
      flag_field("model.qkv_bias", PLIMSOLL_AT(model.qkv_bias), "Queries, keys and values have a bias (Qwen2).")
          .with_families(Families::llama),
      flag_field("model.out_bias", PLIMSOLL_AT(model.out_bias),
                 "The attention's output projection has a bias; with `qkv_bias` the same as attention_bias in transformers.")
          .with_families(Families::llama),
      flag_field("model.qk_norm", PLIMSOLL_AT(model.qk_norm), "RMS norm of every query and key head (Qwen3).")
          .with_families(Families::llama),
      number_field("model.sliding_window", PLIMSOLL_AT(model.sliding_window), count_from(0, kMostTokens),
                   "Tokens a token can look back (Mistral); 0 = all.")
          .with_families(Families::llama),
      number_field("model.token_types", PLIMSOLL_AT(model.token_types), count_from(1, kMostWidth), "Kinds of segment.")
          .with_families(Families::bert),
  };
}

}  // namespace

std::vector<Field> model_fields() {
  std::vector<Field> table{preset_field(), path_field(),
                           choice_field("model.family", PLIMSOLL_AT(model.family), "The architecture that the other keys describe.")};
  for (auto* part : {size_fields, detail_fields, rope_fields}) {
    for (Field& field : part()) table.push_back(std::move(field));
  }
  return table;
}

}  // namespace plimsoll::config
