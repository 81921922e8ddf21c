#include "formats/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/token_file.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats {
namespace {

using ::testing::HasSubstr;

TEST(ByteTokenizer, EveryByteComesBack) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 256, -1}), "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer.vocab(), 256);
}

TEST(ByteTokenizer, TextFilesAreMappedAsBytes) {
  TokenFolder folder;
  std::mt19937 random(6);
  const std::string text = "In the beginning\n\xC3\xA9\0x";
  const io::Path path = folder.put_file("t.txt", text);
  EXPECT_FALSE(recognise_token_file(folder.disk, path).has_value());
  EXPECT_TRUE(reads_like(*open_byte_text(folder.disk, path), ByteTokenizer().encode(text), random));
  EXPECT_THAT(refusal([&] { open_byte_text(folder.disk, folder.put_file("e.txt", "")); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace plimsoll::formats
