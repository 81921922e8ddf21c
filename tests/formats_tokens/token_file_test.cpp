#include "formats/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "formats/byte_tokenizer.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats {
namespace {

using ::testing::HasSubstr;

TEST(TokenFile, RoundTripsOfEachFlatFormat) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 30; ++trial) {
    TokenFolder folder;
    const std::size_t count = 1 + random() % 3000;
    const auto small = random_ids(random, count, 65536);
    const auto large = random_ids(random, count, 128256);
    const auto length = static_cast<std::int32_t>(count);
    const io::Path gpt2 = folder.put_file("a.bin", llmc_header(20240520, 1, length) + packed<std::uint16_t>(small));
    const io::Path llama = folder.put_file("b.anything", llmc_header(20240801, 7, length) + packed<std::uint32_t>(large));
    const io::Path nano = folder.put_file("c.bin", packed<std::uint16_t>(small));
    const io::Path nano4 = folder.put_file("d.bin", packed<std::uint32_t>(large));
    EXPECT_EQ(recognise_token_file(folder.disk, gpt2), TokenFormat::llmc_gpt2);
    EXPECT_EQ(recognise_token_file(folder.disk, llama), TokenFormat::llmc_llama3);
    EXPECT_EQ(recognise_token_file(folder.disk, nano), TokenFormat::headerless);
    EXPECT_TRUE(reads_like(*open_token_file(folder.disk, gpt2), small, random));
    EXPECT_TRUE(reads_like(*open_token_file(folder.disk, llama), large, random));
    EXPECT_TRUE(reads_like(*open_token_file(folder.disk, nano), small, random));
    EXPECT_TRUE(reads_like(*open_token_file(folder.disk, nano4, {.token_bytes = 4}), large, random));
    EXPECT_TRUE(open_token_file(folder.disk, nano)->document_starts().empty());
  }
}

TEST(TokenFile, WrongHeadersAreRefusedWithTheNumbers) {
  TokenFolder folder;
  const std::string ids = packed<std::uint16_t>({1, 2, 3, 4});
  const auto message = [&](const std::string& bytes) {
    const io::Path path = folder.put_file("x.bin", bytes);
    return refusal([&] { open_token_file(folder.disk, path); });
  };
  EXPECT_THAT(message(llmc_header(20240520, 2, 4) + ids), HasSubstr("version 2; expected version 1"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 5) + ids), HasSubstr("5 tokens, which takes 1034 bytes, but it has 1032"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 3) + ids), HasSubstr("3 tokens"));
  EXPECT_THAT(message(llmc_header(20240520, 1, -4) + ids), HasSubstr("-4 tokens"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 0x7FFFFFFF) + ids), HasSubstr("2147483647 tokens"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 0)), HasSubstr("no tokens"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 4).substr(0, 500)), HasSubstr("500 bytes"));
  EXPECT_THAT(message(llmc_header(20240801, 7, 4) + ids), HasSubstr("4 tokens"));  // u32 ids wanted
  EXPECT_THAT(message(llmc_header(20240326, 3, 4) + ids), HasSubstr("a model"));
  EXPECT_THAT(message(llmc_header(20240522, 1, 4) + ids), HasSubstr("an evaluation set"));
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("abc"), HasSubstr("3 bytes"));
  EXPECT_THAT(refusal([&] { open_token_file(folder.disk, folder.put_file("y.bin", "abcdef"), {.token_bytes = 4}); }),
              HasSubstr("token_bytes 2 would fit"));
  EXPECT_THAT(refusal([&] { open_token_file(folder.disk, folder.put_file("y.bin", "abcdef"), {.token_bytes = 3}); }), HasSubstr("2 or 4"));
  EXPECT_THAT(refusal([&] { open_token_file(folder.disk, folder.put_file("y.txt", "text")); }), HasSubstr("no token file"));
  EXPECT_THAT(refusal([&] { open_token_file(folder.disk, folder.path() / "none.bin"); }), HasSubstr("No such file"));
}

TEST(TokenFile, IdsOfFourBytesAreNotTakenForTwiceAsManyOfTwo) {
  TokenFolder folder;
  const auto open = [&](const std::string& bytes, const TokenFileOptions& options) {
    return open_token_file(folder.disk, folder.put_file("x.bin", bytes), options)->size();
  };
  std::mt19937 random(3);
  for (const std::int32_t vocab : {97, 50257, 200000}) {
    const std::string wide = packed<std::uint32_t>(random_ids(random, 100, vocab));
    EXPECT_THAT(refusal([&] { open(wide, {}); }), HasSubstr("\"data.token_bytes\" to 4, or to 2 if they are"));
    EXPECT_EQ(open(wide, {.token_bytes = 4}), 100);
    EXPECT_EQ(open(wide, {.certain = true}), 200);
    EXPECT_EQ(open(packed<std::uint16_t>(random_ids(random, 100, std::min(vocab, 65536))), {}), 100);
  }
  EXPECT_EQ(open(packed<std::uint16_t>(std::vector<std::int32_t>(100, 3)), {}), 100);
}

TEST(TokenFile, CutAnywhereItIsRefusedOrReadSafely) {
  TokenFolder folder;
  const std::string whole = llmc_header(20240520, 1, 20) + packed<std::uint16_t>(std::vector<std::int32_t>(20, 7));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const io::Path path = folder.put_file("x.anything", whole.substr(0, size));
    EXPECT_NE(refusal([&] { open_token_file(folder.disk, path); }), "(no error)") << size;
  }
}

TEST(TokenFile, IdsBeyond31BitsAreNamed) {
  TokenFolder folder;
  std::string bytes = packed<std::uint32_t>({1, 2, 3});
  put(bytes, 0x80000000u);
  const auto source = open_token_file(folder.disk, folder.put_file("x.bin", bytes), {.token_bytes = 4});
  EXPECT_THAT(refusal([&] { all_of(*source); }), HasSubstr("position 3"));
}

TEST(TokenFile, ShardsAndPatternsBecomeOneSource) {
  std::mt19937 random(2);
  TokenFolder folder;
  std::vector<std::int32_t> all;
  for (int shard = 0; shard < 5; ++shard) {
    const auto ids = random_ids(random, 1 + random() % 40, 256);
    all.insert(all.end(), ids.begin(), ids.end());
    const auto name = "train_00" + std::to_string(shard) + ".bin";
    folder.put_file(name, shard % 2 == 0 ? packed<std::uint16_t>(ids)
                                         : llmc_header(20240520, 1, static_cast<std::int32_t>(ids.size())) + packed<std::uint16_t>(ids));
  }
  folder.put_file("tail.txt", "ab");
  all.push_back('a');
  all.push_back('b');
  const auto source =
      open_tokens(folder.disk, {(folder.path() / "train_*.bin").string(), (folder.path() / "tail.txt").string()}, {}, open_byte_text);
  EXPECT_TRUE(reads_like(*source, all, random));
  EXPECT_THAT(refusal([&] { open_tokens(folder.disk, {(folder.path() / "none*").string()}, {}, open_byte_text); }), HasSubstr("none*"));
  EXPECT_THAT(refusal([&] { open_tokens(folder.disk, {}, {}, open_byte_text); }), HasSubstr("no data file"));
}

TEST(TokenFile, IdOutsideTheVocabularyNamesShardAndPosition) {
  TokenFolder folder;
  folder.put_file("a0.bin", packed<std::uint16_t>({1, 2, 3}));
  folder.put_file("a1.bin", packed<std::uint16_t>({4, 5, 600, 7}));
  const auto source = open_tokens(folder.disk, {(folder.path() / "a*.bin").string()}, {}, open_byte_text);
  EXPECT_EQ(check_all_ids(*source, 601), 600);
  const std::string message = refusal([&] { check_all_ids(*source, 600); });
  EXPECT_THAT(message, HasSubstr("a1.bin"));
  EXPECT_THAT(message, HasSubstr("id 600 at position 2"));
  EXPECT_THAT(message, HasSubstr("600 ids"));
}

}  // namespace
}  // namespace plimsoll::formats
