// Hugging Face folders in and out: golden models come out as they went in; wrong tensors are named.
#include "formats/hf_directory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>

#include "families/families.h"
#include "formats/hf_config.h"
#include "formats_safetensors/golden_models.h"
#include "io/temporary_folder.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::formats {
namespace {

class HfDirectoryTest : public ::testing::Test {
 protected:
  using Tensors = std::map<std::string, TensorView>;

  io::Path out() const { return folder_.path() / "out"; }

  void export_again(io::FileSystem& file_system, const HfDirectory& from, const HfExport& request) {
    export_hf(file_system, out(), request,
              [&](std::string_view name, std::int64_t first_row, std::span<float> values) { from.load(name, first_row, values); });
  }

  // A folder of given tensors with a golden configuration.
  void write_folder(const HfDirectory& like, const Tensors& tensors) {
    io::remove_tree(disk_, out());
    disk_.make_directory(out());
    write_hf_config(disk_, out(), like.config());
    std::vector<TensorSpec> specs;
    for (const auto& [name, view] : tensors) specs.push_back({name, view.dtype, view.shape});
    SafetensorsWriter writer(disk_, out() / "model.safetensors", specs);
    for (const auto& [name, view] : tensors) writer.write(name, view.data);
    writer.finish();
  }

  std::string refusal(const HfDirectory& like, const Tensors& tensors) {
    write_folder(like, tensors);
    try {
      HfDirectory::open(disk_, out());
      return "";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
      return error.what();
    }
  }

  static Tensors tensors_of(const HfDirectory& folder) {
    Tensors tensors;
    for (const std::string_view name : folder.weights().names()) tensors.emplace(name, folder.weights().at(name));
    return tensors;
  }

  static Tensors renamed(const Tensors& tensors, const std::function<std::string(const std::string&)>& rename) {
    Tensors out;
    for (const auto& [name, view] : tensors) out.emplace(rename(name), view);
    return out;
  }

  void expect_same_tensors(const HfDirectory& a, const HfDirectory& b) {
    for (const HfTensor& tensor : a.tensors()) EXPECT_EQ(load(a, tensor.name), load(b, tensor.name)) << tensor.name;
  }

  tests::TemporaryFolder folder_;
  io::PosixFileSystem disk_;
};

TEST_F(HfDirectoryTest, GoldenModelsComeOutByteForByte) {
  for (const io::Path& path : golden_folders(disk_)) {
    const HfDirectory folder = open_golden(disk_, path);
    EXPECT_TRUE(folder.absent().empty());
    export_again(disk_, folder, {.model = folder.model(), .config = folder.config()});
    const SafetensorsSet written = SafetensorsSet::open(disk_, out());
    EXPECT_EQ(written.names(), folder.weights().names());
    for (const std::string_view name : written.names()) {
      EXPECT_EQ(to_f32(written.at(name)), to_f32(folder.weights().at(name))) << path << " " << name;
      EXPECT_EQ(written.at(name).shape, folder.weights().at(name).shape);
    }
    EXPECT_EQ(read_hf_config_json(disk_, out()), folder.config());
    io::remove_tree(disk_, out());
  }
}

TEST_F(HfDirectoryTest, SomeRowsAreThoseOfTheWhole) {
  for (const io::Path& path : golden_folders(disk_)) {
    const HfDirectory folder = open_golden(disk_, path);
    for (const HfTensor& tensor : folder.tensors()) {
      const std::vector<float> whole = load(folder, tensor.name);
      const std::int64_t rows = tensor.shape[0], width = std::ssize(whole) / rows;
      for (const std::int64_t at_once : {std::int64_t{1}, std::int64_t{7}, rows / 2 + 1}) {
        std::vector<float> pieces(whole.size());
        for (std::int64_t row = 0; row < rows; row += at_once) {
          const auto count = static_cast<std::size_t>(std::min(at_once, rows - row) * width);
          folder.load(tensor.name, row, std::span(pieces).subspan(static_cast<std::size_t>(row * width), count));
        }
        EXPECT_EQ(pieces, whole) << path << " " << tensor.name << " by " << at_once;
      }
    }
  }
}

TEST_F(HfDirectoryTest, ShardsAndSixteenBitsLoadAgain) {
  for (const io::Path& path : golden_folders(disk_)) {
    const HfDirectory folder = open_golden(disk_, path);
    for (const FileDType dtype : {FileDType::bf16, FileDType::f16, FileDType::f64}) {
      export_again(disk_, folder, {.model = folder.model(), .config = folder.config(), .dtype = dtype, .max_shard_bytes = 20000});
      const HfDirectory again = HfDirectory::open(disk_, out());
      EXPECT_GT(again.weights().files().size(), 1u);
      for (const HfTensor& tensor : folder.tensors()) {
        const std::vector<float> values = load(folder, tensor.name);
        std::vector<std::byte> stored(values.size() * static_cast<std::size_t>(bits_of(dtype) / 8));
        std::vector<float> rounded(values.size());
        write_f32(dtype, values, stored);
        read_f32(dtype, stored, 0, rounded);
        EXPECT_EQ(load(again, tensor.name), rounded) << tensor.name;
      }
      io::remove_tree(disk_, out());
    }
  }
}

TEST_F(HfDirectoryTest, BaseModelsWithoutPrefixAreTheSame) {
  for (const char* name : {"gpt2-tiny", "llama-tied-llama3rope"}) {
    const HfDirectory folder = golden_model(disk_, name);
    const std::string prefix(folder.model().family->files->prefix);
    write_folder(folder, renamed(tensors_of(folder), [&](const std::string& tensor) { return tensor.substr(prefix.size()); }));
    expect_same_tensors(folder, HfDirectory::open(disk_, out()));
  }
}

TEST_F(HfDirectoryTest, ABareBertLacksItsHeadAndSaysSo) {
  const HfDirectory folder = golden_model(disk_, "bert-tiny");
  Tensors tensors;
  for (const auto& [name, view] : tensors_of(folder)) {
    if (name.starts_with("bert.")) tensors.emplace(name.substr(5), view);
  }
  tensors["pooler.dense.weight"] = folder.weights().at("cls.predictions.transform.dense.weight");
  write_folder(folder, tensors);
  const HfDirectory bare = HfDirectory::open(disk_, out());
  EXPECT_EQ(bare.absent(),
            (std::vector<std::string>{"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"}));
  EXPECT_FALSE(bare.holds("head.bias"));
  EXPECT_TRUE(bare.holds("embed.tokens"));
  EXPECT_EQ(load(bare, "blocks.1.attention.qkv.bias"), load(folder, "blocks.1.attention.qkv.bias"));
}

TEST_F(HfDirectoryTest, OldNamesOfBertsNormsAreKnown) {
  const HfDirectory folder = golden_model(disk_, "bert-tiny");
  write_folder(folder, renamed(tensors_of(folder), [](std::string name) {
                 if (const auto at = name.find("LayerNorm.weight"); at != std::string::npos) name.replace(at, 16, "LayerNorm.gamma");
                 if (const auto at = name.find("LayerNorm.bias"); at != std::string::npos) name.replace(at, 14, "LayerNorm.beta");
                 return name;
               }));
  expect_same_tensors(folder, HfDirectory::open(disk_, out()));
}

TEST_F(HfDirectoryTest, AnUntiedBertComputesWithTheDecodersBias) {
  const HfDirectory tied = golden_model(disk_, "bert-tiny");
  base::Json config = tied.config();
  config.set("tie_word_embeddings", false);
  Tensors tensors = tensors_of(tied);
  tensors["cls.predictions.decoder.weight"] = tied.weights().at("bert.embeddings.word_embeddings.weight");
  const std::vector<float> bias(59, 2.5F);
  tensors["cls.predictions.decoder.bias"] = {{"", FileDType::f32, {59}}, std::as_bytes(std::span(bias))};
  write_folder(tied, tensors);
  write_hf_config(disk_, out(), config);
  EXPECT_EQ(load(HfDirectory::open(disk_, out()), "head.bias"), bias);
  EXPECT_EQ(load(HfDirectory::open(disk_, out()), "head.weight"), load(tied, "embed.tokens"));
}

// transformers computes with the decoder's, tied or not, and keeps both.
TEST_F(HfDirectoryTest, BothOfBertsBiasesComeOutAsTheyWentIn) {
  const HfDirectory tied = golden_model(disk_, "bert-tiny");
  const std::vector<float> used(59, 2.5F), unused(59, -1.0F);
  for (const bool is_tied : {true, false}) {
    for (const bool differ : {true, false}) {
      io::remove_tree(disk_, out());
      base::Json config = tied.config();
      config.set("tie_word_embeddings", is_tied);
      Tensors tensors = tensors_of(tied);
      if (!is_tied) tensors["cls.predictions.decoder.weight"] = tied.weights().at("bert.embeddings.word_embeddings.weight");
      tensors["cls.predictions.decoder.bias"] = {{"", FileDType::f32, {59}}, std::as_bytes(std::span(used))};
      tensors["cls.predictions.bias"] = {{"", FileDType::f32, {59}}, std::as_bytes(std::span(differ ? unused : used))};
      write_folder(tied, tensors);
      write_hf_config(disk_, out(), config);
      const HfDirectory folder = HfDirectory::open(disk_, out());
      EXPECT_EQ(load(folder, "head.bias"), used);
      ASSERT_EQ(folder.passengers().size(), differ ? 1u : 0u);
      io::Path again = out();
      again += "-again";
      io::remove_tree(disk_, again);
      export_hf(disk_, again, {.model = folder.model(), .config = folder.config(), .passengers = folder.passengers()},
                [&](std::string_view name, std::int64_t first, std::span<float> values) { folder.load(name, first, values); });
      const HfDirectory back = HfDirectory::open(disk_, again);
      EXPECT_EQ(load(back, "head.bias"), used);
      EXPECT_EQ(to_f32(back.weights().at("cls.predictions.bias")), differ ? unused : used);
      EXPECT_EQ(back.weights().find("cls.predictions.decoder.bias") != nullptr, differ || !is_tied);
    }
  }
}

TEST_F(HfDirectoryTest, AnotherHeadIsNamed) {
  const HfDirectory bert = golden_model(disk_, "bert-tiny");
  Tensors tensors;
  for (const auto& [name, view] : tensors_of(bert)) {
    if (name.starts_with("bert.")) tensors.emplace(name, view);
  }
  tensors["classifier.weight"] = bert.weights().at("cls.predictions.transform.dense.weight");
  const std::string message = refusal(bert, tensors);
  for (const char* part : {"the head of a classifier", "classifier.weight", "BertModel.from_pretrained"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(HfDirectoryTest, BuffersAndEqualCopiesOfTiedHeadsAreFine) {
  const HfDirectory folder = golden_model(disk_, "gpt2-tiny");
  Tensors tensors = tensors_of(folder);
  const std::vector<std::byte> mask(16 * 16);
  tensors["transformer.h.0.attn.bias"] = {{"", FileDType::u8, {1, 1, 16, 16}}, mask};
  tensors["lm_head.weight"] = folder.weights().at("transformer.wte.weight");
  EXPECT_EQ(refusal(folder, tensors), "");
  std::vector<float> other = to_f32(folder.weights().at("transformer.wte.weight"));
  other[7] += 1.0F;
  tensors["lm_head.weight"].data = std::as_bytes(std::span(other));
  EXPECT_NE(refusal(folder, tensors).find("tie_word_embeddings"), std::string::npos);
}

TEST_F(HfDirectoryTest, WrongTensorsAreNamed) {
  const HfDirectory folder = golden_model(disk_, "qwen2-tiny");
  const std::string key = "model.layers.1.self_attn.k_proj.weight";  // (16, 32)
  const auto expect = [&](const Tensors& tensors, std::vector<std::string> says) {
    const std::string message = refusal(folder, tensors);
    for (const std::string& part : says) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  Tensors tensors = tensors_of(folder);
  tensors.erase(key);
  expect(tensors, {"lacks 1 tensor(s)", key});

  tensors = tensors_of(folder);
  tensors[key].shape = {32, 16};
  expect(tensors, {key, "F32[32, 16]", "[16, 32]"});

  tensors = tensors_of(folder);
  tensors[key].dtype = FileDType::i32;
  expect(tensors, {key, "I32[16, 32]", "F32, BF16, F16 or F64"});

  tensors = tensors_of(folder);
  tensors["model.layers.2.mlp.up_proj.weight"] = tensors[key];
  expect(tensors, {"holds 1 tensor(s)", "model.layers.2.mlp.up_proj.weight"});

  expect({}, {"holds 0 weights"});
}

TEST_F(HfDirectoryTest, WeightsThatAreWrittenOverWhileTheyAreReadAreNotUsed) {
  const HfDirectory golden = open_golden(disk_, golden_folders(disk_)[0]);
  write_folder(golden, tensors_of(golden));
  const io::Path path = out() / "model.safetensors";
  const HfDirectory folder = HfDirectory::open(disk_, out());
  const HfTensor& tensor = folder.tensors()[0];
  std::vector<float> values(static_cast<std::size_t>(tensor.shape[0] * (tensor.shape.size() == 1 ? 1 : tensor.shape[1])));
  EXPECT_NO_THROW(folder.load(tensor.name, 0, values));
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::milliseconds(10));
  EXPECT_THROW(folder.load(tensor.name, 0, values), base::Error);
}

TEST_F(HfDirectoryTest, ExportNeverWritesIntoAUsedFolder) {
  const HfDirectory folder = golden_model(disk_, "gpt2-tiny");
  const HfExport request{.model = folder.model(), .config = folder.config()};
  disk_.make_directory(out());
  export_again(disk_, folder, request);  // an empty one is fine
  EXPECT_THROW(export_again(disk_, folder, request), base::Error);
}

TEST_F(HfDirectoryTest, WhatSixteenBitsCannotHoldIsNotWritten) {
  const HfDirectory folder = golden_model(disk_, "gpt2-tiny");
  float large = 65519.0f;
  const auto exported = [&](FileDType dtype) {
    io::remove_tree(disk_, out());
    export_hf(disk_, out(), {.model = folder.model(), .dtype = dtype}, [&](std::string_view name, std::int64_t first, std::span<float> to) {
      folder.load(name, first, to);
      if (name == "head.norm.bias") to[1] = -large;
    });
  };
  exported(FileDType::f16);
  large = 65520.0f;
  exported(FileDType::bf16);
  try {
    exported(FileDType::f16);
    ADD_FAILURE() << "was written";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
    EXPECT_STREQ(error.what(), "'head.norm.bias' holds -65520, and fp16 nothing beyond 65504; choose f32 or bf16 (--dtype)");
  }
  EXPECT_TRUE(disk_.list(folder_.path()).empty());
}

TEST_F(HfDirectoryTest, TokenizerFilesGoAlong) {
  const HfDirectory folder = golden_model(disk_, "gpt2-tiny");
  io::replace_file(disk_, folder_.path() / "tokenizer.json", io::as_bytes("{}"));
  export_again(disk_, folder, {.model = folder.model(), .companions = read_companions(disk_, folder_.path())});
  EXPECT_EQ(io::read_text(disk_, out() / "tokenizer.json"), "{}");
  EXPECT_EQ(HfDirectory::open(disk_, out()).model(), folder.model());
}

TEST_F(HfDirectoryTest, AFailedExportLeavesNothing) {
  const HfDirectory folder = golden_model(disk_, "llama-packed");
  const HfExport request{.model = folder.model(), .config = folder.config(), .max_shard_bytes = 30000};
  for (const io::FaultKind kind : {io::FaultKind::io_error, io::FaultKind::short_write}) {
    for (std::int64_t k = 1;; ++k) {
      io::FaultyFileSystem faulty(disk_, {.at = k, .kind = kind});
      bool failed = false;
      try {
        export_again(faulty, folder, request);
      } catch (const io::IoError&) {
        failed = true;
      }
      if (disk_.status(out())) {
        expect_same_tensors(folder, HfDirectory::open(disk_, out()));
      } else {
        EXPECT_TRUE(failed);
      }
      io::remove_tree(disk_, out());
      EXPECT_TRUE(disk_.list(folder_.path()).empty() || kind == io::FaultKind::io_error) << k;
      io::remove_tree(disk_, folder_.path() / "out.tmp");
      if (!faulty.reached()) break;
    }
  }
}

}  // namespace
}  // namespace plimsoll::formats
