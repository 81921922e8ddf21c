#include <gtest/gtest.h>

#include "formats_tokenizer/golden_cases.h"

namespace plimsoll::formats::tokenizer {
namespace {

// What comes out piece by piece is the text, and every piece is whole characters.
TEST(StreamDecoder, PiecesMakeTheText) {
  for (const char* name : {"gpt2", "llama3", "llama2", "mistral", "spm-bpe", "spm-bpe-symbols", "bert-uncased"}) {
    const auto tokenizer = open_golden(name);
    for (const std::string& text : golden_texts()) {
      const std::vector<std::int32_t> ids = tokenizer->encode(text);
      StreamDecoder stream(tokenizer);
      std::string streamed;
      for (const std::int32_t id : ids) streamed += stream.next(id);
      streamed += stream.finish();
      ASSERT_EQ(streamed, tokenizer->decode(ids)) << name;
    }
  }
}

TEST(StreamDecoder, GoesOnFromAPrompt) {
  const auto tokenizer = open_golden("mistral");
  const std::vector<std::int32_t> prompt = tokenizer->encode("don't the of");
  const std::vector<std::int32_t> all = tokenizer->encode("don't the of and in");
  ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), all.begin()));
  StreamDecoder stream(tokenizer);
  stream.start(prompt);
  std::string streamed;
  for (std::size_t i = prompt.size(); i < all.size(); ++i) streamed += stream.next(all[i]);
  EXPECT_EQ(streamed + stream.finish(), " and in");  // with its space, which the first token of a text would lose
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  io::PosixFileSystem disk;
  const auto tokenizer = open_golden("gpt2");
  const std::vector<std::int32_t> ids = tokenizer->encode("\xF0\x9F\x98\x80!");
  ASSERT_GT(ids.size(), 2u);
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.next(ids[0]), "");
  std::string rest;
  for (std::size_t i = 1; i < ids.size(); ++i) rest += stream.next(ids[i]);
  EXPECT_EQ(rest, "\xF0\x9F\x98\x80!");
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
