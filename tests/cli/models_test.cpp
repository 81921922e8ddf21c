// Model folders in and out: generate, import, export and inspect.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class Models : public testing::Test {
 protected:
  // A Hugging Face folder of a golden model.
  void copy_golden(const std::string& name, const std::string& to) {
    const std::filesystem::path from = std::filesystem::path(PLIMSOLL_SOURCE_DIR "/tests/golden/data") / name;
    std::filesystem::create_directories(folder_.path(to));
    std::filesystem::copy_file(from / "config.json", folder_.path(to + "/config.json"));
    std::filesystem::copy_file(from / "weights.safetensors", folder_.path(to + "/model.safetensors"));
    golden_ = base::parse_json(read_file(from / "generate.json"), "generate.json");
  }

  std::string output(const std::vector<std::string>& arguments) {
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 0) << testing::PrintToString(arguments) << "\n" << ended.err;
    return ended.out;
  }
  base::Json json(const std::vector<std::string>& arguments) { return base::parse_json(output(arguments), "output", {.strict = true}); }

  void expect_refusal(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 2) << testing::PrintToString(arguments) << ended.out << ended.err;
    for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << part << "\nin: " << ended.err;
  }

  static std::string joined(const base::Json& ids, const std::string& separator) {
    std::string text;
    for (const base::Json& id : ids.as_array()) text += (text.empty() ? "" : separator) + base::write_json(id);
    return text;
  }

  RunFolder folder_;
  base::Json golden_;
};

// ---- generate

TEST_F(Models, GenerateFromAModelFolder) {
  copy_golden("llama-tiny", "model");
  const std::string prompt = joined(golden_.at("prompt"), ",");
  const base::Json found = json({"generate", "model", "--prompt-ids", prompt, "--tokens", "11", "--json", "--set", "threads=2"});
  EXPECT_EQ(base::write_json(found.at("tokens")), base::write_json(golden_.at("tokens")));
  EXPECT_EQ(found.at("prompt_tokens").as_integer(), std::ssize(golden_.at("prompt").as_array()));
  EXPECT_EQ(found.at("context").as_integer(), 16);
  EXPECT_EQ(found.at("stopped").as_string(), "count");
  EXPECT_EQ(output({"generate", "model", "--prompt-ids", prompt, "--tokens", "11"}),
            joined(golden_.at("prompt"), " ") + " " + joined(golden_.at("tokens"), " ") + "\n");
}

// Byte-level BPE without merges: a token is a byte, and its id is not the byte.
constexpr std::string_view kTokenizer = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": false, "byte_fallback": false, "vocab": VOCAB, "merges": []}})";

TEST_F(Models, GenerateWithTheFoldersTokenizer) {
  copy_golden("gpt2-tiny", "model");
  expect_refusal({"generate", "model", "--prompt", "ab"}, {"found no tokenizer", "--prompt-ids"});
  const auto write_tokenizer = [&](int count) {
    std::string vocab;
    for (int id = 0; id < count; ++id)
      vocab += std::string(id == 0 ? "{" : ", ") + "\"" + static_cast<char>('A' + id) + "\": " + std::to_string(id);
    std::string text(kTokenizer);
    folder_.write("model/tokenizer.json", text.replace(text.find("VOCAB"), 5, vocab + "}"));
  };
  write_tokenizer(26);
  const base::Json by_ids = json({"generate", "model", "--prompt-ids", "2,0,1", "--tokens", "6", "--json"});
  const base::Json by_text = json({"generate", "model", "--prompt", "CAB", "--tokens", "6", "--json"});
  EXPECT_EQ(by_text.at("tokens"), by_ids.at("tokens"));
  std::string expected;
  for (const base::Json& id : by_ids.at("tokens").as_array()) {
    if (id.as_integer() < 26) expected += static_cast<char>('A' + id.as_integer());
  }
  EXPECT_EQ(by_text.at("text").as_string(), expected);
  EXPECT_EQ(output({"generate", "model", "--prompt", "CAB", "--tokens", "6"}), "CAB" + expected + "\n");
  // As many tokens as the model cannot have.
  base::Json config = base::parse_json(folder_.read("model/config.json"), "config.json");
  write_tokenizer(62 - 36);
  EXPECT_EQ(folder_.plimsoll({"generate", "model", "--prompt", "A", "--tokens", "1"}).exit_code, 0);
  std::string many = folder_.read("model/tokenizer.json");
  many.replace(many.find("\"Z\": 25"), 7, "\"Z\": 61");
  folder_.write("model/tokenizer.json", many);
  expect_refusal({"generate", "model", "--prompt", "A"}, {"does not fit the model's", "61", "62"});
}

TEST_F(Models, GenerateShowsWholeCharacters) {
  // A model of bytes that says the same character for ever would need training; the stream alone is checked by its sum.
  ASSERT_EQ(folder_.plimsoll({"train", "run.json"}).exit_code, 0);
  const std::vector<std::string> command{"generate", "run.json",      "--prompt", "x\u00e9", "--tokens",
                                         "300",      "--temperature", "9",        "--seed",  "4"};
  const std::string shown = output(command);
  std::vector<std::string> as_json = command;
  as_json.push_back("--json");
  const base::Json found = json(as_json);
  std::string bytes = "x\u00e9";
  for (const base::Json& id : found.at("tokens").as_array()) bytes += static_cast<char>(id.as_integer());
  EXPECT_EQ(shown, bytes + "\n");
}

TEST_F(Models, GenerateEndsWhereTheTextDoes) {
  copy_golden("llama-tiny", "model");
  const std::int64_t end = golden_.at("tokens").at(4).as_integer();
  base::Json config = base::parse_json(folder_.read("model/config.json"), "config.json");
  for (const base::Json& eos : {base::Json(end), base::Json::array({base::Json(60), base::Json(end)})}) {
    config.set("eos_token_id", eos);
    folder_.write("model/config.json", base::write_json(config));
    const std::vector<std::string> command{"generate", "model", "--prompt-ids", joined(golden_.at("prompt"), ","),
                                           "--tokens", "11",    "--json"};
    const base::Json found = json(command);
    EXPECT_EQ(found.at("stopped").as_string(), "end");
    EXPECT_LE(found.at("tokens").size(), 4u);
    std::vector<std::string> on = command;
    on.push_back("--ignore-end");
    EXPECT_EQ(json(on).at("tokens").size(), 11u);
  }
  // The file about generating goes before the one about the model.
  const auto stopped = [&](const std::string& generation, const base::Json& eos) {
    config.set("eos_token_id", eos);
    folder_.write("model/config.json", base::write_json(config));
    folder_.write("model/generation_config.json", generation);
    return json({"generate", "model", "--prompt-ids", joined(golden_.at("prompt"), ","), "--tokens", "11", "--json"})
        .at("stopped")
        .as_string();
  };
  EXPECT_EQ(stopped(fmt::format(R"({{"eos_token_id": [60, {}], "do_sample": true}})", end), base::Json(60)), "end");
  EXPECT_EQ(stopped(fmt::format(R"({{"eos_token_id": {}}})", end), base::Json()), "end");
  EXPECT_EQ(stopped(R"({"eos_token_id": 60})", base::Json(end)), "count");
  EXPECT_EQ(stopped(R"({"do_sample": true})", base::Json(end)), "end");
}

TEST_F(Models, GenerateGoesOnBehindTheContext) {
  copy_golden("gpt2-tiny", "model");
  const Ended ended = folder_.plimsoll({"generate", "model", "--prompt-ids", "1,2,3", "--tokens", "40", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(base::parse_json(ended.out, "output").at("tokens").size(), 40u);
  EXPECT_NE(ended.err.find("context of 16 tokens"), std::string::npos) << ended.err;
}

TEST_F(Models, GenerateDrawsBySeed) {
  copy_golden("gpt2-tiny", "model");
  const auto drawn = [&](const std::string& seed) {
    return output({"generate", "model", "--prompt-ids", "1", "--tokens", "12", "--temperature", "2", "--top-k", "50", "--top-p", "0.99",
                   "--seed", seed});
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
}

TEST_F(Models, GenerateRefusals) {
  copy_golden("gpt2-tiny", "model");
  expect_refusal({"generate", "model", "--prompt-ids", "1,61"}, {"token id 61 at position 1", "61 ids"});
  expect_refusal({"generate", "model", "--prompt-ids", ""}, {"--prompt-ids", "found nothing", "expected a whole number >= 0"});
  expect_refusal({"generate", "model", "--prompt-ids", "1", "--top-k", "-3"}, {"--top-k", "found -3, expected a whole number >= 0"});
  expect_refusal({"import", "model", ""}, {"found an empty name"});
  expect_refusal({"generate", "nothing"}, {"nothing", "expected a run file"});
  std::filesystem::create_directories(folder_.path("empty"));
  expect_refusal({"generate", "empty"}, {"empty", "config.json", "manifest.json", "run.json"});
}

// ---- import, export

TEST_F(Models, ImportKeepsEverything) {
  for (const char* name : {"gpt2-untied-odd", "qwen2-tiny", "mistral-window"}) {
    SCOPED_TRACE(name);
    const std::string model = std::string("model-") + name;
    copy_golden(name, model);
    base::Json config = base::parse_json(folder_.read(model + "/config.json"), "config.json");
    config.set("made_up", base::Json::array({base::Json(1), base::Json("two")}));
    folder_.write(model + "/config.json", base::write_json(config));
    folder_.write(model + "/tokenizer.json", "{\"any\": \"thing\"}");
    const std::string imported = model + "-imported";
    const base::Json said = json({"import", model, imported, "--json"});
    EXPECT_EQ(said.at("dtype").as_string(), "F32");
    EXPECT_EQ(base::parse_json(folder_.read(imported + "/config.json"), "config.json").at("made_up"), config.at("made_up"));
    EXPECT_EQ(folder_.read(imported + "/tokenizer.json"), folder_.read(model + "/tokenizer.json"));
    const std::string prompt = joined(golden_.at("prompt"), ",");
    const std::string count = std::to_string(golden_.at("tokens").size());
    EXPECT_EQ(base::write_json(json({"generate", imported, "--prompt-ids", prompt, "--tokens", count, "--json"}).at("tokens")),
              base::write_json(golden_.at("tokens")));
    // Back again: nothing is lost by the second trip.
    json({"export", imported, imported + "-again", "--json"});
    EXPECT_EQ(folder_.read(imported + "-again/model.safetensors"), folder_.read(imported + "/model.safetensors"));
  }
}

TEST_F(Models, ShardsAndTypes) {
  copy_golden("llama-tiny", "model");
  const auto bytes = [&](const std::string& folder) { return json({"inspect", folder, "--json"}).at("bytes").as_integer(); };
  output({"import", "model", "sharded", "--max-shard", "20KB"});
  EXPECT_TRUE(folder_.exists("sharded/model.safetensors.index.json"));
  EXPECT_GT(json({"inspect", "sharded", "--json"}).at("files").as_integer(), 2);
  EXPECT_EQ(bytes("sharded"), bytes("model"));
  output({"import", "sharded", "half", "--dtype", "bf16"});
  EXPECT_EQ(2 * bytes("half"), bytes("model"));
  EXPECT_EQ(json({"inspect", "half", "--json"}).at("dtypes").as_string(), "BF16");
  // What has been rounded once stays as it is, whatever it is stored as.
  output({"export", "half", "wide", "--dtype", "f32"});
  output({"export", "wide", "half-again", "--dtype", "bf16"});
  EXPECT_EQ(folder_.read("half-again/model.safetensors"), folder_.read("half/model.safetensors"));
}

TEST_F(Models, ExportOfARun) {
  ASSERT_EQ(folder_.plimsoll({"train", "run.json"}).exit_code, 0);
  for (const auto& [from, to] :
       {std::pair("run.json", "a"), {"out", "b"}, {"out/", "c"}, {"out/checkpoints", "d"}, {"out/checkpoints/step-00000006", "e"}}) {
    output({"export", from, to});
    EXPECT_EQ(folder_.read(std::string(to) + "/model.safetensors"), folder_.read("a/model.safetensors"));
  }
  EXPECT_TRUE(folder_.read("a/model.safetensors").size() > 1000u);
  output({"export", "out/checkpoints/step-00000004", "older"});
  EXPECT_NE(folder_.read("older/model.safetensors"), folder_.read("a/model.safetensors"));
  // The folder is a model like any other: it says what the run says.
  const std::vector<std::string> ask{"--prompt", "the q", "--tokens", "8"};
  const auto text_of = [&](const std::string& model) {
    std::vector<std::string> words{"generate", model};
    words.insert(words.end(), ask.begin(), ask.end());
    return output(words);
  };
  EXPECT_EQ(text_of("a"), text_of("run.json"));
  EXPECT_EQ(text_of("out/checkpoints/step-00000006"), text_of("run.json"));
  // And training starts from it.
  const Ended further =
      folder_.plimsoll({"train", "run.json", "--set", "model={\"path\": \"a\"}", "--set", "out=further", "--set", "steps=2"});
  EXPECT_EQ(further.exit_code, 0) << further.err;
  const double loss = std::stod(column(folder_.read("further/metrics.jsonl"), "loss").front());
  EXPECT_LT(loss, std::stod(column(folder_.read("out/metrics.jsonl"), "loss").front()));
}

TEST_F(Models, RefusalsLeaveNothingBehind) {
  copy_golden("gpt2-tiny", "model");
  const std::vector<std::string> before = folder_.files();
  expect_refusal({"import", "none", "to"}, {"none", "expected"});
  expect_refusal({"import", "run.json", "to"}, {"run.json", "no Hugging Face folder"});
  expect_refusal({"import", "model", "model"}, {"model", "exists and is not an empty folder"});
  expect_refusal({"import", "model", "to", "--dtype", "int8"}, {"--dtype", "int8"});
  expect_refusal({"import", "model", "to", "--max-shard", "much"}, {"--max-shard", "much", "5GB"});
  expect_refusal({"export", "run.json", "to"}, {"found no valid checkpoint", "plimsoll train"});
  EXPECT_EQ(folder_.files(), before);

  const std::string config = folder_.read("model/config.json");
  const auto with = [&](const std::string& key, const base::Json& value) {
    base::Json changed = base::parse_json(config, "config.json");
    changed.set(key, value);
    folder_.write("model/config.json", base::write_json(changed));
  };
  with("n_layer", base::Json(3));
  expect_refusal({"import", "model", "to"}, {"lacks", "transformer.h.2."});
  with("n_layer", base::Json(1));
  expect_refusal({"import", "model", "to"}, {"does not have", "transformer.h.1."});
  with("vocab_size", base::Json(60));
  expect_refusal({"import", "model", "to"}, {"transformer.wte.weight", "F32[61, 32]", "[60, 32]"});
  with("model_type", base::Json("mamba"));
  expect_refusal({"import", "model", "to"}, {"mamba"});
  folder_.write("model/config.json", config);
  std::string weights = folder_.read("model/model.safetensors");
  folder_.write("model/model.safetensors", weights.substr(0, weights.size() - 4));
  expect_refusal({"import", "model", "to"}, {"model.safetensors"});
  EXPECT_FALSE(folder_.exists("to"));
  EXPECT_FALSE(folder_.exists("to.tmp"));
}

// ---- inspect

TEST_F(Models, InspectOfModels) {
  copy_golden("llama-tiny", "model");
  const std::string words = output({"inspect", "model"});
  for (const char* part : {"a Hugging Face folder, llama of 20960 parameters", "2 layers", "4 heads (2 for keys and values)", "of its own",
                           "tokenizer: none"}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << "\nin: " << words;
  }
  const base::Json found = json({"inspect", "model", "--json"});
  EXPECT_EQ(found.at("kind").as_string(), "model");
  EXPECT_EQ(found.at("model").at("kv_heads").as_integer(), 2);
  EXPECT_EQ(found.at("parameters").as_integer(), 20960);
  const base::Json file = json({"inspect", "model/model.safetensors", "--json"});
  EXPECT_EQ(file.at("kind").as_string(), "safetensors");
  EXPECT_EQ(file.at("elements").as_integer(), 20960);
  EXPECT_NE(output({"inspect", "model/model.safetensors"}).find("lm_head.weight"), std::string::npos);
  std::filesystem::copy_file(folder_.path("model/model.safetensors"), folder_.path("unnamed"));
  EXPECT_EQ(json({"inspect", "unnamed", "--json"}).at("tensors"), file.at("tensors"));
}

TEST_F(Models, InspectOfCheckpoints) {
  ASSERT_EQ(folder_.plimsoll({"train", "run.json"}).exit_code, 0);
  for (const char* path : {"out", "out/checkpoints", "out/checkpoints/"}) {
    const base::Json list = json({"inspect", path, "--json"}).at("checkpoints");
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list.at(0).at("step").as_integer(), 6);
    EXPECT_TRUE(list.at(0).at("valid").as_bool());
  }
  const base::Json one = json({"inspect", "out/checkpoints/step-00000006", "--json"});
  EXPECT_EQ(one.at("step").as_integer(), 6);
  EXPECT_TRUE(one.at("valid").as_bool());
  EXPECT_NE(output({"inspect", "out/checkpoints/step-00000006"}).find("embed.tokens"), std::string::npos);
  std::string data = folder_.read("out/checkpoints/step-00000006/data-00000.bin");
  data[data.size() / 3] ^= 1;
  folder_.write("out/checkpoints/step-00000006/data-00000.bin", data);
  expect_refusal({"inspect", "out/checkpoints/step-00000006"}, {"data-00000.bin"});
  const base::Json list = json({"inspect", "out", "--json"}).at("checkpoints");
  EXPECT_FALSE(list.at(0).at("valid").as_bool());
  EXPECT_NE(list.at(0).at("reason").as_string().find("data-00000.bin"), std::string::npos);
  EXPECT_TRUE(list.at(1).at("valid").as_bool());
}

}  // namespace
}  // namespace plimsoll::tests
