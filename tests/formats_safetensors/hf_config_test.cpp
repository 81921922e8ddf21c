// config.json in the spellings of transformers 4 and 5, settings that are refused, and the way back.
#include "formats/hf_config.h"

#include <gtest/gtest.h>

#include "families/families.h"
#include "formats_safetensors/golden_models.h"
#include "io/temporary_folder.h"

namespace plimsoll::formats {
namespace {

using base::Json;
using model::Model;

Json parse(const std::string& text) { return base::parse_json(text, "config.json", {.strict = true}); }

const std::string kLlama = R"("hidden_size":24,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":40,
    "max_position_embeddings":64,"vocab_size":61)";

Model llama(const std::string& more, const std::string& type = "llama") {
  return model_from_hf_config(parse(R"({"model_type":")" + type + "\"," + kLlama + more + "}"));
}

std::string refusal(const std::string& config) {
  try {
    model_from_hf_config(parse(config));
    return "";
  } catch (const base::Error& error) {
    return error.what();
  }
}

std::string llama_refusal(const std::string& more, const std::string& type = "llama") {
  return refusal(R"({"model_type":")" + type + "\"," + kLlama + more + "}");
}

TEST(HfConfig, GoldenModelsHaveTheSizesOfTheirRuns) {
  io::PosixFileSystem disk;
  for (const io::Path& folder : golden_folders(disk)) {
    const Model model = read_hf_config(disk, folder);
    const Json run = base::parse_json(io::read_text(disk, folder / "run.json"), "run.json").at("model");
    EXPECT_EQ(model.family->name, run.at("family").as_string());
    EXPECT_EQ(model.layers, run.at("layers").as_integer());
    EXPECT_EQ(model.width, run.at("width").as_integer());
    EXPECT_EQ(model.heads, run.at("heads").as_integer());
    EXPECT_EQ(model.vocab, run.at("vocab").as_integer());
    EXPECT_EQ(model.tied, run.at("tied").as_bool()) << folder;
  }
}

TEST(HfConfig, BothSpellingsOfRotaryPositionsMeanTheSame) {
  EXPECT_EQ(llama(R"(,"rope_theta":5000.0)"), llama(R"(,"rope_parameters":{"rope_theta":5000.0,"rope_type":"default"})"));
  EXPECT_EQ(llama(R"(,"rope_theta":5000,"rope_scaling":null)"), llama(R"(,"rope_theta":5000.0)"));
  EXPECT_EQ(llama(R"(,"rope_theta":500.0,"rope_scaling":{"type":"linear","factor":2.5})"),
            llama(R"(,"rope_parameters":{"rope_theta":500.0,"rope_type":"linear","factor":2.5})"));
  EXPECT_EQ(llama(R"(,"rope_theta":500.0,"rope_scaling":{"type":"linear","factor":2.5})"),
            llama(R"(,"rope_scaling":{"rope_theta":500.0,"type":"linear","factor":2.5},)"
                  R"("rope_parameters":{"rope_theta":500.0,"rope_type":"linear","factor":2.5})"));
  const std::string factors = R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32)";
  const Model scaled = llama(R"(,"rope_theta":500.0,"rope_scaling":{"rope_type":"llama3",)" + factors + "}");
  EXPECT_EQ(scaled, llama(R"(,"rope_parameters":{"rope_theta":500.0,"rope_type":"llama3",)" + factors + "}"));
  EXPECT_EQ(scaled.rope.scaling, model::RopeScaling::llama3);
  EXPECT_EQ(scaled.rope.original_context, 32);
  EXPECT_EQ(llama("").rope, model::Rope{});
}

TEST(HfConfig, RelativesOfLlamaDifferInWhatTheyAdd) {
  EXPECT_FALSE(llama("").qkv_bias);
  EXPECT_TRUE(llama("", "qwen2").qkv_bias);
  EXPECT_FALSE(llama("", "qwen2").out_bias);
  EXPECT_FALSE(llama("").out_bias);
  for (const char* type : {"llama", "qwen3"}) {
    EXPECT_TRUE(llama(R"(,"attention_bias":true)", type).qkv_bias);
    EXPECT_TRUE(llama(R"(,"attention_bias":true)", type).out_bias);
  }
  EXPECT_TRUE(llama("", "qwen3").qk_norm);
  EXPECT_EQ(llama("", "qwen3").head_dim, 128);
  EXPECT_EQ(llama("").head_dim, 6);
  EXPECT_EQ(llama(R"(,"head_dim":10)").head_dim, 10);
  EXPECT_EQ(llama(R"(,"sliding_window":4)", "mistral").sliding_window, 4);
  EXPECT_EQ(llama(R"(,"sliding_window":null)", "mistral").sliding_window, 0);
  EXPECT_EQ(llama("", "mistral").sliding_window, 4096);  // transformers' default
  EXPECT_EQ(llama(R"(,"sliding_window":4)").sliding_window, 0);
  EXPECT_EQ(llama(R"(,"sliding_window":4,"use_sliding_window":false)", "qwen2").sliding_window, 0);
  EXPECT_EQ(llama(R"(,"sliding_window":4,"use_sliding_window":true,"max_window_layers":0)", "qwen2").sliding_window, 4);
  EXPECT_EQ(llama(R"(,"sliding_window":4,"use_sliding_window":true)", "qwen2").sliding_window, 0);  // the first 28 layers see all
  EXPECT_EQ(llama(R"(,"sliding_window":4,"layer_types":["sliding_attention","sliding_attention"])", "qwen3").sliding_window, 4);
}

TEST(HfConfig, ThePaddingIsWhatTransformersTakesForIt) {
  const std::string bert = R"({"model_type":"bert","hidden_size":24,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":40,
      "max_position_embeddings":64,"vocab_size":61)";
  EXPECT_EQ(model_from_hf_config(parse(bert + "}")).pad_token, 0);
  EXPECT_EQ(model_from_hf_config(parse(bert + R"(,"pad_token_id":null})")).pad_token, -1);
  EXPECT_EQ(model_from_hf_config(parse(bert + R"(,"pad_token_id":5})")).pad_token, 5);
  EXPECT_EQ(llama("").pad_token, -1);
  EXPECT_EQ(llama(R"(,"pad_token_id":60)").pad_token, 60);
  EXPECT_EQ(llama(R"(,"pad_token_id":-1)").pad_token, 60);  // torch counts from the end
  EXPECT_NE(llama_refusal(R"(,"pad_token_id":61)").find("a token of 61"), std::string::npos);
}

TEST(HfConfig, RefusesByNameWhatItDoesNotCompute) {
  const auto expect = [](const std::string& message, std::string_view says) {
    EXPECT_NE(message.find(says), std::string::npos) << message;
  };
  expect(refusal("{}"), "model_type");
  expect(refusal(R"({"model_type":"gemma"})"), "gpt2, llama, mistral, qwen2, qwen3, bert");
  expect(refusal(R"({"model_type":"llama"})"), "\"num_hidden_layers\" is missing");
  expect(llama_refusal(R"(,"attention_bias":true)", "mistral"), "attention_bias");
  expect(llama_refusal(R"(,"mlp_bias":true)"), "mlp_bias");
  expect(llama_refusal(R"(,"hidden_act":"gelu_10")"), "activation");
  expect(llama_refusal(R"(,"rope_scaling":{"rope_type":"yarn","factor":2})"), "\"yarn\"");
  expect(llama_refusal(R"(,"rope_scaling":{"rope_type":"linear"})"), "factor");
  expect(llama_refusal(R"(,"rope_theta":500,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":500})"), "remove");
  expect(llama_refusal(R"(,"partial_rotary_factor":0.5)"), "partial_rotary_factor");
  expect(llama_refusal(R"(,"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5})"), "partial_rotary_factor");
  expect(llama_refusal(R"(,"quantization_config":{"bits":4})"), "quantized");
  expect(llama_refusal(R"(,"sliding_window":4,"layer_types":["full_attention","sliding_attention"])", "qwen2"), "1 of 2 layers");
  expect(llama_refusal(R"(,"layer_types":["full_attention"])", "qwen2"), "one for each of 2 layers");
  expect(llama_refusal(R"(,"head_dim":7)"), "even");
  expect(
      refusal(
          R"({"model_type":"llama","hidden_size":25,"num_hidden_layers":1,"num_attention_heads":4,"intermediate_size":4,"vocab_size":4,"max_position_embeddings":4})"),
      "does not divide");
  expect(
      refusal(
          R"({"model_type":"gpt2","n_layer":1,"n_embd":8,"n_head":2,"n_positions":8,"vocab_size":8,"scale_attn_by_inverse_layer_idx":true})"),
      "scale_attn_by_inverse_layer_idx");
  expect(refusal(R"({"model_type":"bert","is_decoder":true})"), "is_decoder");
  expect(refusal(R"({"model_type":"bert","position_embedding_type":"relative_key"})"), "relative_key");
  for (const char* bad : {"0", "-3", "2.5", "\"4\"", "1e30", "9223372036854775807", "true"}) {
    expect(refusal(std::string(R"({"model_type":"gpt2","n_layer":)") + bad + "}"), "n_layer");
  }
}

TEST(HfConfig, WhatSaysTheSameIsLeftAlone) {
  io::PosixFileSystem disk;
  for (const io::Path& folder : golden_folders(disk)) {
    const Json config = read_hf_config_json(disk, folder);
    EXPECT_EQ(hf_config_from_model(model_from_hf_config(config), config, FileDType::f32), config) << folder;
  }
}

TEST(HfConfig, ChangesAreLaidOverWhatIsUnknown) {
  io::PosixFileSystem disk;
  for (const io::Path& folder : golden_folders(disk)) {
    Json config = read_hf_config_json(disk, folder);
    config.set("of_tomorrow", Json::object({{"x", 1}}));
    Model model = model_from_hf_config(config);
    model.layers = 3;
    model.vocab += 2;
    model.norm_eps = 1e-3;
    model.rope.theta = 77.0;
    const Json written = hf_config_from_model(model, config, FileDType::bf16);
    if (model.family != families::llama()) model.rope = {};
    EXPECT_EQ(model_from_hf_config(written), model) << folder;
    EXPECT_EQ(written.at("of_tomorrow"), config.at("of_tomorrow"));
    EXPECT_EQ(written.at("model_type"), config.at("model_type"));
    EXPECT_EQ(written.at("dtype").as_string(), "bfloat16");
    for (const base::JsonMember& member : config.as_object()) EXPECT_TRUE(written.find(member.key)) << member.key;
  }
}

TEST(HfConfig, ModelsOfOurOwnComeBackTheSame) {
  std::vector<Model> models;
  for (const std::string& name : families::preset_names()) models.push_back(*families::preset(name));
  Model odd = *families::preset("llama-135m");
  odd.sliding_window = 7;
  models.push_back(odd);
  odd.qkv_bias = true;
  models.push_back(odd);
  Model biased = *families::preset("llama-135m");
  biased.qkv_bias = biased.out_bias = true;
  models.push_back(biased);
  EXPECT_EQ(hf_config_from_model(biased, {}, FileDType::f32).at("model_type").as_string(), "llama");
  biased.qk_norm = true;
  biased.head_dim = 64;
  models.push_back(biased);
  EXPECT_EQ(hf_config_from_model(biased, {}, FileDType::f32).at("model_type").as_string(), "qwen3");
  odd.qkv_bias = false;
  odd.qk_norm = true;
  odd.head_dim = 10;
  odd.rope = {.theta = 3.5, .scaling = model::RopeScaling::linear, .factor = 1.5};
  models.push_back(odd);
  for (const Model& model : models) {
    const Json config = hf_config_from_model(model, {}, FileDType::f16);
    EXPECT_EQ(model_from_hf_config(config), model) << base::write_json(config);
    EXPECT_EQ(config.at("torch_dtype").as_string(), "float16");
  }
  Model wide = *families::preset("llama-135m");
  wide.width = 65;  // which transformers refuses for a Llama
  const Json config = hf_config_from_model(wide, {}, FileDType::f32);
  EXPECT_EQ(config.at("model_type").as_string(), "mistral");
  EXPECT_EQ(model_from_hf_config(config), wide);
  odd.qkv_bias = true;
  EXPECT_THROW(hf_config_from_model(odd, {}, FileDType::f32), base::Error);
  Model half = *families::preset("llama-135m");
  half.out_bias = true;  // which nobody has without the others
  EXPECT_THROW(hf_config_from_model(half, {}, FileDType::f32), base::Error);
  Model narrow = *families::preset("gpt2");
  narrow.head_dim = 60;  // which a GPT-2 of transformers cannot say
  EXPECT_THROW(hf_config_from_model(narrow, {}, FileDType::f32), base::Error);
}

TEST(HfConfig, AFolderWithoutOneIsNamed) {
  const tests::TemporaryFolder folder;
  io::PosixFileSystem disk;
  EXPECT_THROW(read_hf_config(disk, folder.path()), base::Error);
  write_hf_config(disk, folder.path(), hf_config_from_model(*families::preset("gpt2"), {}, FileDType::f32));
  EXPECT_EQ(read_hf_config(disk, folder.path()), *families::preset("gpt2"));
}

}  // namespace
}  // namespace plimsoll::formats
