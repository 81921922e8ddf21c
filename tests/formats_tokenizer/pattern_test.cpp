// The patterns that are scanned by hand against the same expressions run by PCRE2, and the rewriting of expressions.
#include "formats/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "formats/tokenizer/regex.h"
#include "formats/tokenizer/utf8.h"
#include "formats_tokenizer/golden_cases.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array<const char*, 3> kByHand{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

std::vector<Range> found(const Pattern& pattern, std::string_view text) {
  std::vector<Range> matches;
  pattern.find(text, matches);
  return matches;
}

TEST(Patterns, ByHandAndByPcreAgree) {
  std::mt19937 random(8);
  const std::vector<std::string> atoms{" ",
                                       " ",
                                       "\n",
                                       "\r",
                                       "\t",
                                       "'",
                                       "s",
                                       "S",
                                       "t",
                                       "re",
                                       "LL",
                                       "a",
                                       "Z",
                                       "1",
                                       "23",
                                       ".",
                                       "!?",
                                       "\xC3\xA9",
                                       "\xC5\xBF",
                                       "\xE3\x80\x80",
                                       "\xC2\xA0",
                                       "\xE6\x97\xA5",
                                       "\xF0\x9F\x98\x80",
                                       "\xCC\x81",
                                       "\xC2\xB2",
                                       "\xD9\xA3",
                                       "_",
                                       "\x85",
                                       "\0"};
  std::vector<std::string> texts = golden_texts();
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += atoms[random() % atoms.size()];
    texts.push_back(valid_utf8(text) ? text : repair_utf8(text));
  }
  for (const char* expression : kByHand) {
    const auto by_hand = regex_pattern(expression, "test");
    ASSERT_TRUE(by_hand->covers());
    const Regex by_pcre(expression, "test");
    for (const std::string& text : texts) ASSERT_EQ(found(*by_hand, text), found(by_pcre, text)) << expression << "\n" << text;
  }
}

TEST(Patterns, EmptyMatchesCut) {
  const Regex before_capitals("(?=[A-Z])", "test");
  EXPECT_THAT(found(before_capitals, "aBC"), ElementsAre(Range{1, 1}, Range{2, 2}));
  const Regex anything("x*", "test");
  EXPECT_THAT(found(anything, "xxa"), ElementsAre(Range{0, 2}, Range{3, 3}));
}

TEST(Patterns, LinesAndClassesAreRuby) {
  EXPECT_EQ(found(Regex("^b$", "test"), "a\nb\nc").size(), 1u);
  EXPECT_EQ(found(Regex(R"(\h+)", "test"), "zDEADz").size(), 1u);
  EXPECT_EQ(found(Regex(R"(\S+)", "test"), "a\xE3\x80\x80z").size(), 2u);      // an ideographic space
  EXPECT_EQ(found(Regex(R"(\s)", "test"), "\xE1\xA0\x8E").size(), 0u);         // U+180E has not been a space for long
  EXPECT_EQ(found(Regex(R"(\w+)", "test"), "a\xCC\x81z").size(), 1u);          // marks belong to words
  EXPECT_EQ(found(Regex(R"(\p{L})", "test"), "\xF0\xAE\xAF\xB0").size(), 1u);  // a letter of Unicode 15.1
  EXPECT_EQ(found(Regex(R"([\u4e00-\u9FFF])", "test"), "a字").size(), 1u);
  EXPECT_EQ(found(Regex(R"(\w)", "test"), "²½").size(), 2u);                             // fractions of Latin-1 are words,
  EXPECT_EQ(found(Regex(R"([\w])", "test"), "²½").size(), 0u);                           // but not between brackets
  EXPECT_EQ(found(Regex(R"(\p{Han})", "test"), "。「字〆\xF0\xAE\xAF\xB0").size(), 2u);  // not what it shares with other scripts
  EXPECT_EQ(found(Regex(R"([^\p{Han}])", "test"), "。「字〆").size(), 3u);
}

// What tests say of texts here, tokenizers 0.23 says too.
TEST(Patterns, ClassesWithinClassesAreWorkedOut) {
  const auto matched = [](const std::string& expression, const std::string& text) {
    std::string out;
    for (const Range& range : found(Regex(expression, "test"), text)) out += text.substr(range.begin, range.end - range.begin) + "|";
    return out;
  };
  EXPECT_EQ(matched(R"( ?[^(\s|[.,!?…。，、।۔،])]+)", "Hello, (wörld)! 日本。"), "Hello|wörld| 日本|");  // BLOOM's
  EXPECT_EQ(matched(R"([\p{Lu}\p{Lo}&&[^\p{Han}]]+)", "ABc日本かD"), "AB|かD|");                         // Kimi's
  EXPECT_EQ(matched("[a-z&&[^aeiou]&&[^x-z]]+", "hello xyz"), "h|ll|");
  EXPECT_EQ(matched("[^a-z&&[^aeiou]]", "axe-"), "a|e|-|");
  EXPECT_EQ(matched("[[:upper:]][[:lower:]]+|[[:punct:]]|[[:^alpha:][:digit:]]", "Ab+ 1ä"), "Ab|+| |1|");
  EXPECT_EQ(matched("[[:alpha:]]+", "a\xCD\xA3z1\xF0\xAE\xAF\xB0"), "a\xCD\xA3z|\xF0\xAE\xAF\xB0|");  // letters of Unicode 16
  EXPECT_EQ(matched(R"([^\W_]+)", "a_b é²"), "a|b|é|");
  EXPECT_EQ(matched(R"([\x41-\u0043[\]\-]]+)", "ABCD]-"), "ABC|]-|");
  EXPECT_EQ(matched("[a&&b]", "ab"), "");
  EXPECT_EQ(matched(R"(\bth\w*\b)", "the bath 'thé\xCC\x81' th\xCC\x81"), "the|thé\xCC\x81|th\xCC\x81|");  // marks belong to words
  EXPECT_EQ(matched(R"(\v)", "a\n\v\r"), "\v|");
}

TEST(Patterns, RepeatsAndOptionsAreRuby) {
  const auto lengths = [](const std::string& expression, const std::string& text) {
    std::vector<std::size_t> out;
    for (const Range& range : found(Regex(expression, "test"), text)) out.push_back(range.end - range.begin);
    return out;
  };
  EXPECT_THAT(lengths(R"(\d{1,3}+)", "12345 6"), ElementsAre(5, 1));  // not possessive: again and again
  EXPECT_THAT(lengths("(?:ab){2}+c", "ababababc abc"), ElementsAre(9));
  EXPECT_THAT(lengths("字{2}+", "字字字字字"), ElementsAre(12));
  EXPECT_THAT(lengths("a{2}?b", "aab ab"), ElementsAre(3, 1));  // two or none
  EXPECT_THAT(lengths("a{,2}b", "aaab"), ElementsAre(3));
  EXPECT_THAT(lengths("a{,}b", "a{,}b"), ElementsAre(5));
  EXPECT_THAT(lengths("(?m:a.b)", "a\nb"), ElementsAre(3));
  EXPECT_THAT(lengths("(?mi-x:A.b)", "a\nB"), ElementsAre(3));
  EXPECT_THAT(lengths("(?x) a b # no [ class \n | [ c]+ \\ d", "ab c  d"), ElementsAre(2, 5));
  EXPECT_THAT(lengths("(?x: a )b c", "ab c"), ElementsAre(4));
  EXPECT_THAT(lengths("x|(?i)ab|CD", "X aB cd"), ElementsAre(2, 2));
  EXPECT_THAT(lengths("(?:(?i)b)c(?#d)", "Bc BC"), ElementsAre(2));
}

TEST(Patterns, WhatPcreWouldReadOtherwiseIsRefused) {
  const auto reason = [](const std::string& expression) { return refusal([&] { Regex(expression, "t.json:3:4"); }); };
  EXPECT_THAT(reason("(?~ab)"), HasSubstr("t.json:3:4"));
  EXPECT_THAT(reason("(?i:[a[bc]])"), HasSubstr("where case does not matter"));
  EXPECT_THAT(reason("(?W:a)"), HasSubstr("option"));
  EXPECT_THAT(reason("a(?i)b|c"), HasSubstr("middle of a branch"));
  EXPECT_THAT(reason("a{1,2}++"), HasSubstr("interval"));
  EXPECT_THAT(reason("[[:foo:]]"), HasSubstr("[:foo:]"));
  EXPECT_THAT(reason("[[a"), HasSubstr("ends within"));
  EXPECT_THAT(reason("[[z-a]]"), HasSubstr("backwards"));
  EXPECT_THAT(reason(R"([[a-\d]])"), HasSubstr("range"));
  EXPECT_THAT(reason(R"([[\x{110000}]])"), HasSubstr("no character"));
  EXPECT_THAT(reason(std::string(40, '[') + "a" + std::string(40, ']')), HasSubstr("deep"));
  std::string many = "[[a]";
  for (int i = 0; i < 20; ++i)
    many += fmt::format("\\p{{{}}}", std::array{"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc"}[static_cast<std::size_t>(i)]);
  EXPECT_THAT(reason(many + "]"), HasSubstr("kinds"));
  EXPECT_THAT(reason(R"(\u4e)"), HasSubstr("four digits"));
  EXPECT_THAT(reason("(a"), HasSubstr("cannot be run"));
  EXPECT_THAT(reason("[a"), HasSubstr("ends within"));
  EXPECT_THAT(reason("a\\"), HasSubstr("backslash"));
}

TEST(Patterns, HopelessBacktrackingEnds) {
  const Regex evil("(a+)+$", "test");
  std::vector<Range> matches;
  try {
    evil.find(std::string(40, 'a') + "b", matches);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
  }
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
