// Every stored tokenizer gives the ids and texts of the reference packages.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "formats_tokenizer/golden_cases.h"

namespace plimsoll::formats::tokenizer {
namespace {

class GoldenTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTokenizer, EncodesAndDecodesLikeTheReference) {
  const auto tokenizer = open_golden(GetParam());
  const std::vector<std::string> texts = golden_texts();
  const std::vector<base::Json> expected = read_lines(kGolden / GetParam() / "expect.jsonl");
  ASSERT_EQ(texts.size(), expected.size());
  ASSERT_GT(texts.size(), 10u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<std::int32_t> ids = ids_of(expected[i].at("ids"));
    ASSERT_EQ(tokenizer->encode(texts[i]), ids) << "text " << i << ": " << texts[i];
    ASSERT_EQ(tokenizer->decode(ids, true), expected[i].at("text").as_string()) << "text " << i;
    const base::Json* around = expected[i].find("whole");
    if (around == nullptr) continue;
    std::vector<std::int32_t> whole = tokenizer->before();
    whole.insert(whole.end(), ids.begin(), ids.end());
    const std::vector<std::int32_t> after = tokenizer->after();
    whole.insert(whole.end(), after.begin(), after.end());
    ASSERT_EQ(whole, ids_of(*around)) << "text " << i;
  }
}

TEST_P(GoldenTokenizer, SaysSoWhenSpacesMayBeCutAt) {
  const auto tokenizer = open_golden(GetParam());
  const std::set<std::string> known{"gpt2", "gpt2-split", "llama3", "qwen2", "starcoder", "metaspace", "bert-uncased", "bert-cased"};
  ASSERT_EQ(tokenizer->cuts_at_spaces(), known.contains(GetParam()));
  if (!tokenizer->cuts_at_spaces()) return;
  for (const std::string& awkward : golden_texts()) {
    const std::string text = "the unknown C" + awkward + "A of the";
    for (std::size_t at = 1; at + 1 < text.size(); ++at) {
      const auto letter = [&](std::size_t i) { return std::isalpha(static_cast<unsigned char>(text[i])) != 0; };
      if (text[at] != ' ' || !letter(at - 1) || !letter(at + 1)) continue;
      std::vector<std::int32_t> parts = tokenizer->encode(text.substr(0, at));
      tokenizer->encode(text.substr(at), parts);
      ASSERT_EQ(parts, tokenizer->encode(text)) << text;
    }
  }
}

TEST_P(GoldenTokenizer, IdsLieInTheVocabulary) {
  const auto tokenizer = open_golden(GetParam());
  for (const std::string& text : golden_texts()) {
    for (const std::int32_t id : tokenizer->encode(text)) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer->vocab());
    }
  }
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{-1, static_cast<std::int32_t>(tokenizer->vocab()), 1 << 30}), "");
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer, ::testing::ValuesIn(golden_names()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GoldenTokenizers, ByteLevelOnesLoseNothing) {
  for (const char* name : {"gpt2", "llama3", "o200k", "deepseek", "falcon"}) {
    const auto tokenizer = open_golden(name);
    for (const std::string& text : golden_texts()) ASSERT_EQ(tokenizer->decode(tokenizer->encode(text), true), text) << name;
  }
}

TEST(GoldenTokenizers, AreSafeToShareBetweenThreads) {
  for (const char* name : {"llama3", "deepseek", "spm-bpe"}) {
    const auto tokenizer = open_golden(name);
    const std::vector<std::string> texts = golden_texts();
    std::vector<std::vector<std::int32_t>> alone;
    for (const std::string& text : texts) alone.push_back(tokenizer->encode(text));
    std::vector<int> wrong(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < texts.size(); ++i) {
          const std::size_t mine = (i * (t + 1)) % texts.size();
          if (tokenizer->encode(texts[mine]) != alone[mine]) ++wrong[t];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4)) << name;
  }
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
