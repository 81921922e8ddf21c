// Text in pieces of every size: what is shown is never half a character, and all of it comes out.
#include "formats/tokenizer/text_stream.h"

#include <gtest/gtest.h>

#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {
namespace {

// Two, three and four bytes, the edges of each range, and a flag made of two characters.
const std::string kText = "a\u00e9\u07ff\u0800\u20ac\ud7ff\ue000\uffff\U00010000\U0001f600\U0010ffff\U0001f1e9\U0001f1ea z";

TEST(TextStream, HandsOnWholeCharacters) {
  for (std::size_t size = 1; size <= 7; ++size) {
    TextStream stream;
    std::string shown;
    for (std::size_t at = 0; at < kText.size(); at += size) {
      const std::string piece = stream.push(std::string_view(kText).substr(at, size));
      EXPECT_TRUE(valid_utf8(piece));
      shown += piece;
    }
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(shown, kText);
  }
}

// What can be no character is not waited for, and nothing is lost.
TEST(TextStream, KeepsEveryByteOfWhatIsNotText) {
  for (const std::string bytes : {"\xFF"
                                  "a",
                                  "\xC0\x80",
                                  "\xED\xA0\x80"
                                  "b",
                                  "\x80\x80\x80\x80", "\xF5\x80\x80\x80",
                                  "\xE2\x82"
                                  "c",
                                  "\xF0\x9F\x98"}) {
    TextStream stream;
    std::string shown;
    for (const char byte : bytes) shown += stream.push(std::string_view(&byte, 1));
    EXPECT_EQ(shown + stream.finish(), bytes);
  }
  TextStream stream;
  EXPECT_EQ(stream.push("x\xE2\x82"), "x");
  EXPECT_EQ(stream.push("y"), "\xE2\x82y");
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.finish(), "\xF0\x9F\x98");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
