#include "base/base64.h"

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

TEST(Base64, DecodesTheExamplesOfTheRfc) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9v"), "foo");
  EXPECT_EQ(decode_base64("Zm9vYg=="), "foob");
  EXPECT_EQ(decode_base64("Zm9vYmE="), "fooba");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("+/+A"), "\xFB\xFF\x80");
}

TEST(Base64, RefusesWhatNoEncoderWrites) {
  for (const char* text : {"Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v!m9v", "Zm 9", "Zh==", "-_-_", "Zm9=", "=m9v"}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace plimsoll::base
