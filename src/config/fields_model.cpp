// The fields of "model": which description to start from, then what may be changed of it.
#include <algorithm>

#include "config/fields.h"
#include "families/families.h"

namespace plimsoll::config {

namespace {

// Bounds that keep every product of two or three sizes within 64 bits.
constexpr double kMostLayers = 1e5;
constexpr double kMostWidth = 1e6;

Field preset_field() {
  Field field{.key = "model.preset",
              .about = "A ready-made model; `\"model\": \"gpt2\"` is short for it. The other keys change it.",
              .choices = families::preset_names(),
              .takes_text = true};
  field.expects = expects_choice(field.choices);
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string() || !families::preset(value.as_string())) return false;
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

Field family_field() {
  Field field{.key = "model.family",
              .about = "The architecture that the other keys describe.",
              .choices = families::family_names(),
              .takes_text = true};
  field.expects = expects_choice(field.choices);
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string()) return false;
    const auto named = [&](model::Family family) { return family->name == value.as_string(); };
    const auto more = std::find_if(run.more_families.begin(), run.more_families.end(), named);
    const model::Family family = more != run.more_families.end() ? *more : families::find_family(value.as_string());
    if (family != nullptr) run.model.family = family;
    return family != nullptr;
  };
  field.write = [](const Run& run) { return base::Json(run.model.family->name); };
  return field;
}

// How families work a value out of others: one text where they agree, else each that differs from the first by name.
std::string derived_of(std::string_view key) {
  std::string text;
  std::string_view first;
  for (const model::Family family : families::all_families()) {
    for (const families::Derived& derived : family->derived) {
      if (derived.key != key || derived.how == first) continue;
      text += text.empty() ? std::string(derived.how) : fmt::format("; {}: {}", family->name, derived.how);
      if (first.empty()) first = derived.how;
    }
  }
  return text;
}

std::string vocabularies() {
  std::string text;
  for (const model::Family family : families::all_families())
    text += fmt::format("{}{}: `{}`", text.empty() ? "" : ", ", family->name, families::defaults(family).vocab);
  return text;
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
  return list;
}

std::vector<Field> size_fields() {
  return {
      number_field("model.layers", PLIMSOLL_AT(model.layers), count_from(1, kMostLayers), "Blocks."),
      number_field("model.width", PLIMSOLL_AT(model.width), count_from(1, kMostWidth), "Size of a token's hidden state."),
      number_field("model.heads", PLIMSOLL_AT(model.heads), count_from(1, kMostWidth), "Attention heads."),
      number_field("model.kv_heads", PLIMSOLL_AT(model.kv_heads), count_from(1, kMostWidth),
                   "Heads of keys and values; fewer than `heads` is grouped-query attention.")
          .derived_from(derived_of("kv_heads")),
      number_field("model.head_dim", PLIMSOLL_AT(model.head_dim), count_from(1, kMostWidth), "Size of a head.")
          .derived_from("width / heads"),
      number_field("model.ffn", PLIMSOLL_AT(model.ffn), count_from(1, kMostWidth * 10), "Inner width of the feed-forward part.")
          .derived_from(derived_of("ffn")),
      number_field("model.context", PLIMSOLL_AT(model.context), count_from(1, kMostTokens), "Longest sequence."),
      number_field("model.vocab", PLIMSOLL_AT(model.vocab), count_from(1, kMostTokens), "Number of tokens.")
          .derived_from("the tokenizer's where data.tokenizer is given, else the preset's; " + vocabularies()),
      flag_field("model.tied", PLIMSOLL_AT(model.tied), "The head uses the token embedding."),
  };
}

std::vector<Field> detail_fields() {
  return {
      number_field("model.dropout", PLIMSOLL_AT(model.dropout), rate(), "Dropout after attention and feed-forward."),
      number_field("model.attention_dropout", PLIMSOLL_AT(model.attention_dropout), rate(), "Dropout of attention weights.")
          .derived_from(derived_of("attention_dropout")),
      number_field("model.embedding_dropout", PLIMSOLL_AT(model.embedding_dropout), rate(), "Dropout of the embedding.")
          .derived_from(derived_of("embedding_dropout")),
      number_field("model.norm_eps", PLIMSOLL_AT(model.norm_eps), above(0.0), "Added to the variance in norms."),
      choice_field("model.activation", PLIMSOLL_AT(model.activation), "Of the feed-forward part."),
      number_field("model.init_std", PLIMSOLL_AT(model.init_std), at_least(0.0), "Standard deviation of initial weights."),
      number_field("model.pad_token", PLIMSOLL_AT(model.pad_token), count_from(-1, kMostTokens),
                   "Token that fills up sequences: looking it up trains nothing, as in transformers; -1 = none.")
          .derived_from("the tokenizer's, else `-1`"),
      flag_field("model.qkv_bias", PLIMSOLL_AT(model.qkv_bias), "Queries, keys and values have a bias (Qwen2)."),
      flag_field("model.out_bias", PLIMSOLL_AT(model.out_bias),
                 "The attention's output projection has a bias; with `qkv_bias` the same as attention_bias in transformers."),
      flag_field("model.qk_norm", PLIMSOLL_AT(model.qk_norm), "RMS norm of every query and key head (Qwen3)."),
      number_field("model.sliding_window", PLIMSOLL_AT(model.sliding_window), count_from(0, kMostTokens),
                   "Tokens a token can look back (Mistral); 0 = all."),
      number_field("model.token_types", PLIMSOLL_AT(model.token_types), count_from(1, kMostWidth), "Kinds of segment."),
  };
}

bool read_own(const families::Setting& setting, const base::Json& value) {
  using Kind = families::Setting::Kind;
  const auto within = [&](const base::Json& number) { return number.as_double() >= setting.min && number.as_double() <= setting.max; };
  switch (setting.kind) {
    case Kind::integer: return value.is_integer() && within(value);
    case Kind::number: return value.is_number() && within(value);
    case Kind::flag: return value.is_bool();
    case Kind::choice: return value.is_string() && std::ranges::find(setting.choices, value.as_string()) != setting.choices.end();
    case Kind::integers:
      return value.is_array() &&
             std::ranges::all_of(value.as_array(), [&](const base::Json& each) { return each.is_integer() && within(each); });
  }
  return false;
}

std::string expects_own(const families::Setting& setting) {
  using Kind = families::Setting::Kind;
  const std::string range = fmt::format("from {} to {}", setting.min, setting.max);
  switch (setting.kind) {
    case Kind::integer: return "an integer " + range;
    case Kind::number: return "a number " + range;
    case Kind::flag: return "true or false";
    case Kind::choice: return expects_choice(setting.choices);
    case Kind::integers: return "an array of integers " + range;
  }
  return {};
}

}  // namespace

bool includes(const Field& field, const families::Family& family) {
  constexpr std::string_view kGroup = "model.";
  if (field.concerns != nullptr) return field.concerns(family);
  if (!field.key.starts_with(kGroup)) return true;
  const std::string_view setting = std::string_view(field.key).substr(kGroup.size());
  return setting == "preset" || setting == "path" || setting == "family" || family.has(setting);
}

std::vector<Field> own_fields(const families::Family& family) {
  std::vector<Field> own;
  for (const families::Setting& setting : family.own) {
    Field field{.key = "model." + setting.key, .about = setting.about, .expects = expects_own(setting), .choices = setting.choices};
    field.read = [setting](const base::Json& value, Run& run) {
      if (!read_own(setting, value)) return false;
      run.model.own.set(setting.key, value);
      return true;
    };
    field.write = [key = setting.key](const Run& run) { return run.model.own.at(key); };
    own.push_back(std::move(field));
  }
  return own;
}

std::vector<Field> fields_of(const Run& run) {
  std::vector<Field> all;
  for (const Field& field : fields()) {
    all.push_back(field);
    if (field.key != "model.family" || run.model.family == nullptr) continue;
    for (Field& own : own_fields(*run.model.family)) all.push_back(std::move(own));
  }
  return all;
}

std::vector<Field> model_fields() {
  std::vector<Field> table{preset_field(), path_field(), family_field()};
  for (auto* part : {size_fields, detail_fields, rope_fields}) {
    for (Field& field : part()) table.push_back(std::move(field));
  }
  return table;
}

}  // namespace plimsoll::config
