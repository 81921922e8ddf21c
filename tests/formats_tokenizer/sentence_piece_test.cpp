// SentencePiece models that are wrong on purpose: none is read beyond its bytes, each is refused with a reason.
#include "formats/tokenizer/sentence_piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "formats_tokenizer/golden_cases.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats::tokenizer {
namespace {

using ::testing::HasSubstr;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string bytes_field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string integer_field(int number, std::uint64_t value) { return varint(static_cast<std::uint64_t>(number) << 3) + varint(value); }

std::string piece(std::string_view text, float score, int type) {
  std::string inner = bytes_field(1, text) + varint(2 << 3 | 5);
  put(inner, score);
  return bytes_field(1, inner + integer_field(3, static_cast<std::uint64_t>(type)));
}

std::string model(const std::string& pieces, int type = 2) {
  return pieces + bytes_field(2, integer_field(3, static_cast<std::uint64_t>(type))) +
         bytes_field(3, integer_field(3, 0) + integer_field(4, 0));
}

const std::string kUnknown = piece("<unk>", 0, 2);

TEST(SentencePiece, MergesByScoreAndFromTheLeft) {
  const auto tokenizer = read_sentence_piece(
      model(kUnknown + piece("a", -1, 1) + piece("b", -2, 1) + piece("ab", -4, 1) + piece("ba", -3, 1) + piece("aa", -4, 1)), "m");
  EXPECT_EQ(tokenizer->encode("aba"), (std::vector<std::int32_t>{1, 4}));      // "ba" has the better score
  EXPECT_EQ(tokenizer->encode("aaa"), (std::vector<std::int32_t>{5, 1}));      // equal scores: the leftmost
  EXPECT_EQ(tokenizer->encode("axxb"), (std::vector<std::int32_t>{1, 0, 2}));  // a run of the unknown is one
  EXPECT_EQ(tokenizer->vocab(), 6);
}

TEST(SentencePiece, UnusedPiecesFallApart) {
  const auto tokenizer =
      read_sentence_piece(model(kUnknown + piece("a", -1, 1) + piece("b", -2, 1) + piece("ab", -3, 5) + piece("abab", -4, 1)), "m");
  EXPECT_EQ(tokenizer->encode("ab"), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(tokenizer->encode("abab"), (std::vector<std::int32_t>{4}));
}

TEST(SentencePiece, WrongModelsAreRefused) {
  const auto found = [](const std::string& bytes) { return refusal([&] { read_sentence_piece(bytes, "m.model"); }); };
  EXPECT_THAT(found("hello, world"), HasSubstr("no SentencePiece model"));
  EXPECT_THAT(found(model("")), HasSubstr("no pieces"));
  EXPECT_THAT(found(model(piece("a", 0, 1))), HasSubstr("no piece for the unknown"));
  EXPECT_THAT(found(model(kUnknown + piece("u", 0, 2))), HasSubstr("two pieces for the unknown"));
  EXPECT_THAT(found(model(kUnknown + piece("a", 0, 1) + piece("a", 0, 1))), HasSubstr("there already"));
  EXPECT_THAT(found(model(kUnknown + piece("a", NAN, 1))), HasSubstr("not finite"));
  EXPECT_THAT(found(model(kUnknown + piece("a", 0, 9))), HasSubstr("type 9"));
  EXPECT_THAT(found(model(kUnknown + piece("\xFF", 0, 1))), HasSubstr("not UTF-8"));
  EXPECT_THAT(found(model(kUnknown + piece("<0xZZ>", 0, 6))), HasSubstr("<0x00>"));
  EXPECT_THAT(found(model(kUnknown, 3)), HasSubstr("type 3"));
  EXPECT_THAT(found(kUnknown + bytes_field(2, integer_field(35, 1) + integer_field(3, 2))), HasSubstr("<0x00>"));
  EXPECT_THAT(found(kUnknown + bytes_field(3, bytes_field(2, "abcdefgh"))), HasSubstr("rules of normalisation"));
}

// A damaged model either is refused or encodes within its vocabulary.
TEST(SentencePiece, DamagedModelsAreRefusedOrHarmless) {
  io::PosixFileSystem disk;
  std::mt19937 random(5);
  int accepted = 0;
  for (const char* name : {"spm-bpe-symbols", "spm-unigram-suffix"}) {
    const std::string whole = io::read_text(disk, golden_file(name));
    for (int trial = 0; trial < 150; ++trial) {
      std::string bytes = whole;
      if (trial % 3 == 0) bytes.resize(random() % bytes.size());
      for (int flips = trial % 7; flips >= 0 && !bytes.empty(); --flips)
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      try {
        const auto tokenizer = read_sentence_piece(bytes, "damaged");
        for (const std::int32_t id : tokenizer->encode("don't \xEF\xBC\xA1 caf\xC3\xA9\t the <mask>"))
          ASSERT_TRUE(id >= 0 && id < tokenizer->vocab());
        ++accepted;
      } catch (const base::Error& error) {
        ASSERT_EQ(error.kind(), base::ErrorKind::bad_input) << error.what();
      }
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
