#include "formats/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "formats/tokenizer/byte_level.h"
#include "formats/tokenizer/unicode.h"

namespace plimsoll::formats::tokenizer {
namespace {

TEST(Utf8, EveryCharacterComesBack) {
  for (std::uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 37) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_TRUE(valid_utf8(text)) << code;
    ASSERT_EQ(decode_at(text.data()).code, code);
    ASSERT_EQ(length_of(text[0]), text.size());
  }
}

TEST(Utf8, WrongSequencesBecomeOneReplacementEach) {
  const std::string mark(kReplacement);
  EXPECT_EQ(repair_utf8("a\xFF\xFE"
                        "b"),
            "a" + mark + mark + "b");
  EXPECT_EQ(repair_utf8("\xE2\x82"), mark);  // cut short
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98x"), mark + "x");
  EXPECT_EQ(repair_utf8("\xC0\xAF"), mark + mark);             // overlong
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), mark + mark + mark);  // a surrogate
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), mark + mark + mark + mark);
  EXPECT_EQ(repair_utf8("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
}

TEST(ByteLevel, EveryByteHasItsCharacter) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string written = bytes_to_characters(bytes);
  EXPECT_TRUE(valid_utf8(written));
  EXPECT_EQ(characters_to_bytes(written), bytes);
  EXPECT_EQ(bytes_to_characters(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_EQ(characters_to_bytes("\xE6\x97\xA5"), std::nullopt);
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalise(NormalForm::nfd, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalise(NormalForm::nfc, "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalise(NormalForm::nfkc, "\xEF\xAC\x81"), "fi");
  EXPECT_EQ(normalise(NormalForm::nfkd, "plain"), "plain");
  EXPECT_EQ(normalise(NormalForm::nfkc, "\xE3\x8B\xBF\xEF\xAC\x81"),
            "\xE3\x8B\xBF"
            "fi");  // U+32FF is kept
  // U+110B U+116D is a syllable of Hangul; U+11A8 is one of the finals that join it, U+11A7 is not.
  EXPECT_EQ(normalise(NormalForm::nfc, "\xE1\x84\x8B\xE1\x85\xAD\xE1\x86\xA8"), "\xEC\x9A\x95");
  EXPECT_EQ(normalise(NormalForm::nfc, "\xE1\x84\x8B\xE1\x85\xAD\xE1\x86\xA7"), "\xEC\x9A\x94\xE1\x86\xA7");
  EXPECT_EQ(normalise(NormalForm::nfkc, "\xEC\x9A\x94\xE1\x86\xA7\xE1\x86\xA8"), "\xEC\x9A\x94\xE1\x86\xA7\xE1\x86\xA8");
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
