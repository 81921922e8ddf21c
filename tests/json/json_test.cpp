#include "base/json.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll::base {
namespace {

std::string error_of(std::string_view text, const JsonOptions& options = {}) {
  try {
    parse_json(text, "f.json", options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

template <typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonParse, EveryKind) {
  const Json json = parse_json(R"({"n": null, "t": true, "f": false, "i": -12, "d": 0.5, "s": "x", "a": [1, 2], "o": {}})", "f.json");
  EXPECT_TRUE(json.at("n").is_null());
  EXPECT_TRUE(json.at("t").as_bool());
  EXPECT_FALSE(json.at("f").as_bool());
  EXPECT_EQ(json.at("i").as_integer(), -12);
  EXPECT_EQ(json.at("d").as_double(), 0.5);
  EXPECT_EQ(json.at("s").as_string(), "x");
  EXPECT_EQ(json.at("a").at(std::size_t{1}).as_integer(), 2);
  EXPECT_TRUE(json.at("o").as_object().empty());
  EXPECT_EQ(json.find("missing"), nullptr);
}

TEST(JsonParse, ObjectsKeepTheirOrder) {
  std::string keys;
  const Json json = parse_json(R"({"z": 1, "a": 2, "m": 3})", "f.json");
  for (const JsonMember& member : json.as_object()) keys += member.key;
  EXPECT_EQ(keys, "zam");
}

TEST(JsonParse, RelaxedTakesCommentsAndTrailingCommas) {
  const Json json = parse_json("# one\n{ // two\n /* three\n */ \"a\": [1, 2,], #\n \"b\": 2, /**/ }\n// end", "f.json");
  EXPECT_EQ(json.at("a").size(), 2u);
  EXPECT_EQ(json.at("b").position(), (JsonPosition{5, 7}));
  EXPECT_EQ(json.at("b").path(), "b");
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}", "f.json").size(), 0u);
}

TEST(JsonParse, StrictRefusesThem) {
  const JsonOptions strict{.strict = true};
  EXPECT_EQ(error_of("{} // x", strict), "f.json:1:4: found '/', expected the end of the text");
  EXPECT_EQ(error_of("[1,]", strict), "f.json:1:4: found ']', expected another value after the ','");
  EXPECT_EQ(error_of("{\"a\":1,}", strict), "f.json:1:8: found '}', expected another key after the ','");
  EXPECT_EQ(error_of("# x\n1", strict), "f.json:1:1: found '#', expected a value");
  EXPECT_NE(error_of("\xEF\xBB\xBF{}", strict), "no error");
}

TEST(JsonParse, Numbers) {
  const auto number = [](std::string_view text) { return parse_json(text, "f.json"); };
  EXPECT_EQ(number("5e8").as_integer(), 500'000'000);
  EXPECT_EQ(number("9223372036854775807").as_integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(number("-9223372036854775808").as_integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(number("9223372036854775808").is_integer());
  EXPECT_EQ(number("9223372036854775808").as_double(), 0x1p63);
  EXPECT_FALSE(number("1.5").is_integer());
  EXPECT_TRUE(number("1.0").is_integer());
  EXPECT_TRUE(std::signbit(number("-0").as_double()));
  EXPECT_EQ(number("3E-4").as_double(), 3e-4);
}

TEST(JsonParse, BadNumbers) {
  for (const char* text :
       {"01", "-01", "1.", ".5", "+1", "-", "1e", "1e+", "0x10", "1.2.3", "12a", "NaN", "-Infinity", "Infinity", "1e999", "1_000"}) {
    EXPECT_NE(error_of(text), "no error") << text;
  }
  EXPECT_EQ(error_of("[1, NaN]"), "f.json:1:5: found 'NaN', expected a value");
  EXPECT_EQ(error_of("1e999"), "f.json:1:1: found the number 1e999, expected one that a 64-bit float can hold");
  EXPECT_EQ(error_of("007"), "f.json:1:1: found '007', expected a number without leading zeros");
}

TEST(JsonParse, Strings) {
  EXPECT_EQ(parse_json(R"("\"\\\/\b\f\n\r\tA\u00e9\u20ac\ud83d\ude00")", "f.json").as_string(),
            "\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(parse_json("\"h\xC3\xA9\"", "f.json").as_string(), "h\xC3\xA9");
  EXPECT_EQ(parse_json(R"("\u0000")", "f.json").as_string(), std::string(1, '\0'));
}

TEST(JsonParse, BadStrings) {
  EXPECT_EQ(error_of("\"ab"), "f.json:1:1: found a string without an end, expected '\"' before the end of the line");
  EXPECT_EQ(error_of("\"a\nb\""), "f.json:1:1: found a string without an end, expected '\"' before the end of the line");
  EXPECT_EQ(error_of("\"a\tb\""), "f.json:1:3: found the control character U+0009, expected an escape such as \\t in its place");
  EXPECT_EQ(error_of("\"\\q\""), "f.json:1:2: found a '\\' before 'q', expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  EXPECT_EQ(error_of("\"\\u12g4\""), "f.json:1:6: found 'g4', expected four hexadecimal digits after \\u");
  EXPECT_EQ(error_of("\"\\ud800x\""), "f.json:1:2: found half of a surrogate pair, expected both halves, such as \\uD83D\\uDE00");
  EXPECT_EQ(error_of("\"\\udc00\""), "f.json:1:2: found half of a surrogate pair, expected both halves, such as \\uD83D\\uDE00");
  for (const char* bad :
       {"\"\xFF\"", "\"\xC0\x80\"", "\"\xE0\x80\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xC3\"", "\"\xE2\x82\""}) {
    EXPECT_NE(error_of(bad).find("not valid UTF-8"), std::string::npos) << error_of(bad);
  }
  EXPECT_EQ(error_of("// \xFF\n1"), "f.json:1:4: found the byte 0xFF, which is not valid UTF-8, expected UTF-8 text");
}

TEST(JsonParse, ErrorsPointAtTheirPlace) {
  EXPECT_EQ(error_of(""), "f.json:1:1: found the end of the text, expected a value");
  EXPECT_EQ(error_of("{\n  \"a\": 1\n  \"b\": 2\n}"), "f.json:3:3: found '\"', expected ',' or '}'");
  EXPECT_EQ(error_of("{a: 1}"), "f.json:1:2: found 'a', expected a key in double quotes");
  EXPECT_EQ(error_of("{'a': 1}"), "f.json:1:2: found a single quote, expected a key in double quotes");
  EXPECT_EQ(error_of("{\"a\" 1}"), "f.json:1:6: found '1', expected ':' after the key");
  EXPECT_EQ(error_of("[1 2]"), "f.json:1:4: found '2', expected ',' or ']'");
  EXPECT_EQ(error_of("[1"), "f.json:1:3: found the end of the text, expected ',' or ']'");
  EXPECT_EQ(error_of("[\"\xC3\xA9\xC3\xA9\", ?]"), "f.json:1:8: found '?', expected a value");  // columns count characters
  EXPECT_EQ(error_of("truex"), "f.json:1:1: found 'truex', expected a value");
  EXPECT_EQ(error_of("/* x"), "f.json:1:1: found a comment without an end, expected \"*/\" after it");
  EXPECT_EQ(error_of("{\"a\": 1,\n \"a\": 2}"), "f.json:2:2: found the key \"a\" a second time, expected each key once (first on line 1)");
  EXPECT_EQ(error_of(std::string_view("1\0", 2)), "f.json:1:2: found the control character U+0000, expected the end of the text");
}

TEST(JsonParse, HjsonNeedsNoQuotesCommasOrOuterBraces) {
  const JsonOptions hjson{.hjson = true};
  const Json json = parse_json(R"(# bare
batch: 8
zero: {
  stage: 3   // a comment ends a number
  device: nvme
  path: /local//nvme, really # all of it
  list: [
    1
    two
    true, 'it\'s', -0.5e1]
  "quoted": null, another: false
}
text: 1 of 2
odd: 007
)",
                               "f.hjson", hjson);
  EXPECT_EQ(json, parse_json(R"({"batch": 8, "zero": {"stage": 3, "device": "nvme", "path": "/local//nvme, really # all of it",
      "list": [1, "two", true, "it's", -5.0], "quoted": null, "another": false}, "text": "1 of 2", "odd": "007"})",
                             "f.json"));
  EXPECT_EQ(json.at("zero").at("device").where(), "f.hjson:5:11");
  EXPECT_EQ(json.at("zero").at("device").path(), "");
  EXPECT_EQ(parse_json("a: x \r\nb: 2\r\n", "f.hjson", hjson), parse_json(R"({"a": "x", "b": 2})", "f.json"));
  EXPECT_EQ(parse_json("{a: \"x\" b: [] c: {}}", "f.hjson", hjson), parse_json(R"({"a": "x", "b": [], "c": {}})", "f.json"));
}

TEST(JsonParse, HjsonErrorsPointAtTheirPlace) {
  const JsonOptions hjson{.hjson = true};
  EXPECT_EQ(error_of("", hjson), "f.json:1:1: found the end of the text, expected a value");
  EXPECT_EQ(error_of("{a: 1", hjson), "f.json:1:6: found the end of the text, expected ',' or '}'");
  EXPECT_EQ(error_of("{a: cpu}", hjson), "f.json:1:9: found the end of the text, expected ',' or '}'");  // the text is "cpu}"
  EXPECT_EQ(error_of("a b: 1", hjson), "f.json:1:3: found 'b', expected ':' after the key");
  EXPECT_EQ(error_of("a: ]", hjson), "f.json:1:4: found ']', expected a value");
  EXPECT_EQ(error_of("a: 1,, b: 2", hjson), "f.json:1:6: found ',', expected a key");
  EXPECT_EQ(error_of("a: 1\na: 2", hjson), "f.json:2:1: found the key \"a\" a second time, expected each key once (first on line 1)");
  EXPECT_EQ(error_of("a: '''x'''", hjson), "f.json:1:4: found a string of several lines, expected one line in double quotes");
  EXPECT_EQ(error_of("a: \xFF", hjson), "f.json:1:4: found the byte 0xFF, which is not valid UTF-8, expected UTF-8 text");
  EXPECT_NE(error_of(std::string_view("a: x\0y", 6), hjson).find("control character U+0000"), std::string::npos);
  EXPECT_NE(error_of(std::string(65, '['), hjson).find("more than 64 arrays and objects"), std::string::npos);
}

// A megabyte in one line: whoever looks for the end of the line at every value takes minutes.
TEST(JsonParse, HjsonTakesTimeInProportion) {
  std::string numbers = "[", words = "a: ";
  for (int i = 0; i < 500'000; ++i) numbers += "1,";
  for (int i = 0; i < 500'000; ++i) words += "x,";
  EXPECT_EQ(parse_json(numbers + "]", "f.hjson", {.hjson = true}).size(), 500'000u);
  EXPECT_EQ(parse_json(words, "f.hjson", {.hjson = true}).at("a").as_string().size(), 1'000'000u);
}

TEST(JsonParse, LimitsDepthAndSize) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(error_of(std::string(65, '[') + std::string(65, ']')),
            "f.json:1:65: found more than 64 arrays and objects inside each other, expected fewer");
  EXPECT_NE(error_of(std::string(10'000'000, '[')), "no error");
  EXPECT_EQ(error_of("[1,2,3]", {.max_bytes = 6}), "f.json: found 7 bytes of JSON, expected at most 6");
}

TEST(JsonParse, LargeObjectsAreSearchedAndCheckedForDuplicates) {
  std::string text = "{";
  for (int i = 0; i < 5000; ++i) text += fmt::format("\"key{}\": {},", i, i);
  const Json json = parse_json(text + "}", "f.json");
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(json.at(fmt::format("key{}", i)).as_integer(), i);
  EXPECT_EQ(json.find("key5000"), nullptr);
  EXPECT_NE(error_of(text + "\"key4321\": 0}").find("\"key4321\" a second time"), std::string::npos);
}

TEST(JsonAccess, ErrorsNamePathAndPlace) {
  const Json json = parse_json("{\"a\": {\"b\": [1, \"two\", {\"c\": null}]},\n \"d\": 1.5}", "f.json");
  EXPECT_EQ(json.at("a").at("b").at(std::size_t{2}).at("c").path(), "a.b[2].c");
  EXPECT_EQ(message_of([&] { std::ignore = json.at("a").at("b").at(std::size_t{1}).as_integer(); }),
            "f.json:1:17: found \"two\" for \"a.b[1]\", expected an integer");
  EXPECT_EQ(message_of([&] { std::ignore = json.at("d").as_integer(); }), "f.json:2:7: found 1.5 for \"d\", expected an integer");
  EXPECT_EQ(message_of([&] { std::ignore = json.at("a").at("x"); }),
            "f.json:1:7: found an object for \"a\", expected it to have the key \"x\"");
  EXPECT_EQ(message_of([&] { std::ignore = json.at("a").at("b").at(std::size_t{3}); }),
            "f.json:1:13: found an array of 3 for \"a.b\", expected at least 4 items");
  EXPECT_EQ(message_of([&] { std::ignore = json.at("d").find("x"); }), "f.json:2:7: found 1.5 for \"d\", expected an object");
  EXPECT_EQ(message_of([&] { std::ignore = Json(3).as_string(); }), "found 3, expected a string");
  EXPECT_EQ(json.where_key(*json.as_object().find("d")), "f.json:2:2");
  EXPECT_EQ(parse_json("1", "--set steps", {.one_line = true}).where(), "--set steps");
}

TEST(JsonWrite, CompactAndPretty) {
  Json json =
      Json::object({{"a", 1}, {"b", Json::array({0.9, 0.95})}, {"c", Json::object()}, {"d", "x\n\"\\\x01"}, {"e", nullptr}, {"f", 2.0}});
  json.set("g", Json::array({Json::object({{"h", true}})}));
  EXPECT_EQ(write_json(json), R"({"a":1,"b":[0.9,0.95],"c":{},"d":"x\n\"\\\u0001","e":null,"f":2.0,"g":[{"h":true}]})");
  EXPECT_EQ(write_json(json, JsonLayout::pretty),
            "{\n  \"a\": 1,\n  \"b\": [0.9, 0.95],\n  \"c\": {},\n  \"d\": \"x\\n\\\"\\\\\\u0001\",\n  \"e\": null,\n  \"f\": 2.0,\n  "
            "\"g\": [\n    "
            "{\n      \"h\": true\n    }\n  ]\n}");
  EXPECT_EQ(parse_json(write_json(json), "f.json"), json);
  EXPECT_EQ(parse_json(write_json(json, JsonLayout::pretty), "f.json"), json);
  EXPECT_EQ(write_json(Json(std::nan(""))), "null");
  EXPECT_EQ(write_json(Json::array({1e-5, 1e300, 1e-10, 0.1, 1e16})), "[1e-5,1e+300,1e-10,0.1,1e+16]");
}

TEST(JsonWrite, DoublesReadBackToTheSameBits) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const Json back = parse_json(write_json(Json(value)), "f.json", {.strict = true});
    ASSERT_EQ(back.kind(), Json::Kind::number);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.as_double()), std::bit_cast<std::uint64_t>(value));
  }
}

}  // namespace
}  // namespace plimsoll::base
