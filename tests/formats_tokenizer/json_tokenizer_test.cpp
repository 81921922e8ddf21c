// What a tokenizer.json may say and what is refused, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/tokenizer/bytes_json.h"
#include "formats_tokenizer/golden_cases.h"
#include "formats_tokens/token_bytes.h"
#include "io/files.h"
#include "io/temporary_folder.h"

namespace plimsoll::formats::tokenizer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kModel = R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "▁": 3}, "merges": ["a b"]})";

std::shared_ptr<const Tokenizer> with(const std::string& parts) {
  return parse_tokenizer(fmt::format("{{{}{}}}", parts.empty() ? "" : parts + ", ", kModel), "t.json");
}

TEST(JsonTokenizer, UnsupportedPartsAreRefusedByName) {
  EXPECT_THAT(refusal([] { with(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Fancy"}]})"); }),
              AllOf(HasSubstr("normalizer"), HasSubstr("Fancy"), HasSubstr("t.json:1")));
  EXPECT_THAT(refusal([] { with(R"("pre_tokenizer": {"type": "UnicodeScripts"})"); }),
              AllOf(HasSubstr("pre-tokenizer"), HasSubstr("UnicodeScripts")));
  EXPECT_THAT(refusal([] { with(R"("decoder": {"type": "CTC"})"); }), AllOf(HasSubstr("decoder"), HasSubstr("CTC")));
  EXPECT_THAT(refusal([] { with(R"("post_processor": {"type": "Fancy"})"); }), AllOf(HasSubstr("post-processor"), HasSubstr("Fancy")));
  EXPECT_THAT(refusal([] { parse_tokenizer(R"({"model": {"type": "Bigram", "vocab": []}})", "u.json"); }),
              AllOf(HasSubstr("model"), HasSubstr("Bigram")));
  EXPECT_THAT(refusal([] { parse_tokenizer(R"({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}})", "d.json"); }),
              HasSubstr("dropout"));
}

TEST(JsonTokenizer, WrongVocabulariesAreRefused) {
  const auto model = [](const std::string& inner) {
    return refusal([&] { parse_tokenizer(fmt::format(R"({{"model": {{"type": "BPE", {}}}}})", inner), "v.json"); });
  };
  EXPECT_THAT(model(R"("vocab": {"a": 0, "b": 0}, "merges": [])"), HasSubstr("id 0 a second time"));
  EXPECT_THAT(model(R"("vocab": {"a": -1}, "merges": [])"), HasSubstr("expected an id"));
  EXPECT_THAT(model(R"("vocab": {"a": 999999999}, "merges": [])"), HasSubstr("expected an id"));
  EXPECT_THAT(model(R"("vocab": {"a": 0}, "merges": ["a b"])"), HasSubstr("\"b\""));
  EXPECT_THAT(model(R"("vocab": {"a": 0, "b": 1}, "merges": ["a b"])"), HasSubstr("\"ab\""));
  EXPECT_THAT(model(R"("vocab": {"a": 0}, "merges": ["a"])"), HasSubstr("two tokens"));
  EXPECT_THAT(model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "<unk>")"), HasSubstr("<unk>"));
  EXPECT_THAT(model(R"("vocab": {}, "merges": [])"), HasSubstr("at least one token"));
  EXPECT_THAT(refusal([] { parse_tokenizer(R"({"model_type": "bert"})", "config.json"); }), HasSubstr("without a \"model\""));
  EXPECT_THAT(refusal([] { parse_tokenizer(" \n", "e.json"); }), HasSubstr("empty"));
}

TEST(JsonTokenizer, WrongUnigramModelsAreRefused) {
  const auto model = [](const std::string& inner) {
    return refusal([&] { parse_tokenizer(fmt::format(R"({{"model": {{"type": "Unigram", {}}}}})", inner), "u.json"); });
  };
  EXPECT_THAT(model(R"("vocab": [])"), HasSubstr("tokens with their scores"));
  EXPECT_THAT(model(R"("vocab": [["a"]])"), HasSubstr("a token and its score"));
  EXPECT_THAT(model(R"("vocab": [["a", "b"]])"), HasSubstr("a number"));
  EXPECT_THAT(model(R"("vocab": [["a", 0]], "unk_id": 1)"), HasSubstr("an id below 1"));
  const auto rules = [](const std::string& blob) {
    return refusal([&] { with(fmt::format(R"("normalizer": {{"type": "Precompiled", "precompiled_charsmap": "{}"}})", blob)); });
  };
  EXPECT_THAT(rules("x"), HasSubstr("base64"));
  EXPECT_THAT(rules("AAAAAA=="), HasSubstr("rules of normalisation"));
  EXPECT_THAT(rules("/////wAA"), HasSubstr("rules of normalisation"));
}

TEST(JsonTokenizer, UnigramTakesTheBestPathAndRunsOfTheUnknown) {
  const auto unigram = [](const std::string& inner) {
    return parse_tokenizer(
        fmt::format(R"({{"model": {{"type": "Unigram", "vocab": [["<unk>", 0], ["a", -1], ["b", -1], ["ab", -3], ["xy", -90]], {}}}}})",
                    inner),
        "u.json");
  };
  const auto with_unknown = unigram(R"("unk_id": 0)");
  EXPECT_THAT(with_unknown->encode("abb"), ElementsAre(1, 2, 2));
  EXPECT_THAT(with_unknown->encode("azzb"), ElementsAre(1, 0, 2));
  EXPECT_THAT(with_unknown->encode("<unk>zz"), ElementsAre(0));
  EXPECT_THAT(with_unknown->encode("axyb"), ElementsAre(1, 4, 2));  // however dear, a token costs less than the unknown
  const auto twice = parse_tokenizer(R"({"model": {"type": "Unigram", "vocab": [["a", 0], ["a", -1]], "unk_id": 0}})", "t.json");
  EXPECT_THAT(twice->encode("aa"), ElementsAre(1, 1));
  EXPECT_EQ(twice->decode(std::vector<std::int32_t>{0, 1}), "a a");
  const auto without = unigram(R"("unk_id": null)");
  EXPECT_THAT(without->encode("ab"), ElementsAre(1, 2));
  EXPECT_THAT(refusal([&] { without->encode("az"); }), AllOf(HasSubstr("\"z\""), HasSubstr("no token for the unknown")));
}

// Eight letters are made of 1, 1, 3 and 3 in any order, which weighs the same but for the last bits: of the sums, and of the scores as
// the package reads them (tokenizers 0.23: 1, 3, 3, 1; with scores rounded once: 1, 1, 3, 3).
TEST(JsonTokenizer, UnigramScoresAreReadAsThePackageReadsThem) {
  const auto unigram = parse_tokenizer(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -2.9405497087868087], ["aa", -7.932036158560629],
                                                              ["aaa", -7.3464223328362985], ["b", -1e-5], ["c", -12]]}})",
      "u.json");
  EXPECT_THAT(unigram->encode("aaaaaaaa"), ElementsAre(1, 3, 3, 1));
  EXPECT_THAT(unigram->encode("bc"), ElementsAre(4, 5));
}

TEST(JsonTokenizer, WordsWithoutATokenAreUnknownOrRefused) {
  const auto words = [](const std::string& inner) {
    return parse_tokenizer(fmt::format(R"({{"pre_tokenizer": {{"type": "Whitespace"}},
                                           "model": {{"type": "WordLevel", "vocab": {{"in": 0, "the": 1, "?": 2}}{}}}}})",
                                       inner),
                           "w.json");
  };
  EXPECT_THAT(words(R"(, "unk_token": "?")")->encode("in the beginning"), ElementsAre(0, 1, 2));
  EXPECT_THAT(refusal([&] { words("")->encode("in the beginning"); }), HasSubstr("\"beginning\""));
}

TEST(JsonTokenizer, AddedTokensMustAgreeWithTheVocabulary) {
  const auto added = [](const std::string& token) { return refusal([&] { with(fmt::format(R"("added_tokens": [{}])", token)); }); };
  EXPECT_THAT(added(R"({"id": 7, "content": "ab"})"), AllOf(HasSubstr("id 7"), HasSubstr("as 2")));
  EXPECT_THAT(added(R"({"id": 1, "content": "<s>"})"), HasSubstr("\"b\""));
  EXPECT_THAT(added(R"({"id": 5, "content": "<s>"}, {"id": 5, "content": "</s>"})"), HasSubstr("two added tokens"));
  EXPECT_EQ(with(R"("added_tokens": [{"id": 9, "content": "<s>"}])")->vocab(), 10);
}

TEST(JsonTokenizer, AddedTokensAreFoundBeforeAnythingElse) {
  const auto tokenizer = with(R"("added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false},
                                                  {"id": 5, "content": "<s>>", "normalized": false, "lstrip": true, "rstrip": true},
                                                  {"id": 6, "content": "zz", "single_word": true, "normalized": false}])");
  EXPECT_THAT(tokenizer->encode("ab<s>a"), ElementsAre(2, 4, 0));
  EXPECT_THAT(tokenizer->encode("a<s>>b"), ElementsAre(0, 5, 1));  // the longest
  EXPECT_THAT(tokenizer->encode("a \n<s>>\t b"), ElementsAre(0, 5, 1));
  EXPECT_THAT(tokenizer->encode("a zz b"), ElementsAre(0, 6, 1));
  EXPECT_THAT(tokenizer->encode("azz zzb"), ElementsAre(2));  // neither stands alone; what is unknown is dropped
}

TEST(JsonTokenizer, AddedTokensTakeSpaceAlongOnce) {
  const auto tokenizer = with(R"("added_tokens": [{"id": 4, "content": "\n", "normalized": false, "lstrip": true, "rstrip": true},
                                                  {"id": 5, "content": "!", "normalized": false, "rstrip": true},
                                                  {"id": 6, "content": "? ", "normalized": false, "lstrip": true}])");
  EXPECT_THAT(tokenizer->encode("a\n\nb"), ElementsAre(0, 4, 1));
  EXPECT_THAT(tokenizer->encode("\n \n"), ElementsAre(4));
  EXPECT_THAT(tokenizer->encode("a! !b"), ElementsAre(0, 5, 5, 1));
  EXPECT_THAT(tokenizer->encode("! ? ? b"), ElementsAre(5, 6, 6, 1));
}

TEST(JsonTokenizer, AddedTokensAreDecodedAsTheyStandInTexts) {
  const auto tokenizer = with(R"("normalizer": {"type": "Lowercase"},
                                 "added_tokens": [{"id": 4, "content": "[MASK]", "normalized": true}, {"id": 5, "content": "END", "normalized": false}])");
  EXPECT_THAT(tokenizer->encode("[Mask]ENDend"), ElementsAre(4, 5));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{4, 5}), "[mask] END");
}

TEST(JsonTokenizer, MergesMayBePairs) {
  const auto tokenizer = parse_tokenizer(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, " b": 1, "a b": 2, " ": 3, "b": 4}, "merges": [[" ", "b"], ["a", " b"]]}})", "p.json");
  EXPECT_THAT(tokenizer->encode("a b"), ElementsAre(2));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 4}), "a b b");
}

TEST(JsonTokenizer, UnknownCharacters) {
  const auto with_unknown = [](const std::string& flags) {
    return parse_tokenizer(
        fmt::format(
            R"({{"model": {{"type": "BPE", "vocab": {{"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xA9>": 3}}, "merges": [], "unk_token": "<unk>", {}}}}})",
            flags),
        "u.json");
  };
  EXPECT_THAT(with_unknown(R"("fuse_unk": false)")->encode("xyaz"), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(with_unknown(R"("fuse_unk": true)")->encode("xyaz"), ElementsAre(1, 0, 1));
  EXPECT_THAT(with_unknown(R"("byte_fallback": true)")->encode("\xC3\xA9"), ElementsAre(2, 3));
  EXPECT_THAT(with(R"("decoder": null)")->encode("xay"), ElementsAre(0));  // without a token for them they are dropped
}

// Bytes are those of the symbol as it is spelled: with its prefix or suffix, in the byte-level alphabet.
TEST(JsonTokenizer, BytesOfUnknownSymbols) {
  const auto bytes = [](const std::string& flags, const std::string& before) {
    return parse_tokenizer(
        fmt::format(R"({{{}"model": {{"type": "BPE", "vocab": {{"a": 0, "<0xC3>": 1, "<0xA9>": 2, "<0x23>": 3, "<0x2F>": 4,
                                           "u": 5, "<0xC2>": 6}}, "merges": [], "unk_token": "u", "byte_fallback": true{}}}}})",
                    before, flags),
        "b.json");
  };
  const auto prefixed = bytes(R"(, "continuing_subword_prefix": "#")", "");
  EXPECT_THAT(prefixed->encode("aé"), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(prefixed->encode("ééz"), ElementsAre(1, 2, 3, 1, 2, 5));
  const auto suffixed = bytes(R"(, "end_of_word_suffix": "/")", "");
  EXPECT_THAT(suffixed->encode("aé"), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(suffixed->encode("éa"), ElementsAre(1, 2, 5));
  const auto wide = bytes("", R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )");
  EXPECT_THAT(wide->encode("a©"), ElementsAre(0, 6, 2, 5));
}

TEST(JsonTokenizer, TextThatIsNotUtf8IsRepaired) {
  const auto tokenizer = open_golden("gpt2");
  EXPECT_EQ(tokenizer->encode("a\xFFz"), tokenizer->encode("a\xEF\xBF\xBDz"));
  EXPECT_EQ(tokenizer->encode("a\xE2\x82"), tokenizer->encode("a\xEF\xBF\xBD"));
}

TEST(JsonTokenizer, KnowsItsTokens) {
  const auto gpt2 = open_golden("gpt2");
  EXPECT_EQ(gpt2->token_id("<|endoftext|>"), 0);
  EXPECT_EQ(gpt2->end_of_text(), 0);
  EXPECT_EQ(gpt2->token_id("no such token"), std::nullopt);
  EXPECT_THAT(open_golden("llama3")->before(), ElementsAre(0));
  EXPECT_THAT(open_golden("bert-uncased")->before(), ElementsAre(2));
  EXPECT_THAT(open_golden("bert-uncased")->after(), ElementsAre(3));
  EXPECT_THAT(gpt2->describe(), AllOf(HasSubstr("BPE"), HasSubstr("420 tokens")));
}

TEST(JsonTokenizer, DecodingLeavesSpecialTokensOut) {
  const auto tokenizer = open_golden("gpt2");
  std::vector<std::int32_t> ids = tokenizer->encode("Hello");
  ids.push_back(0);
  EXPECT_EQ(tokenizer->decode(ids), "Hello");
  EXPECT_EQ(tokenizer->decode(ids, true), "Hello<|endoftext|>");
}

TEST(OpenTokenizer, FilesBesideItSayWhichTokensAreSpecial) {
  io::PosixFileSystem disk;
  const tests::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    io::replace_file(disk, folder.path() / name, io::as_bytes(text));
  };
  const std::string plain =
      R"({"model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "</s>": 1, "[MASK]": 2, "<pad>": 3, "a": 4, "stop": 5}}})";
  write("tokenizer.json", plain);
  const auto special = [&] { return open_tokenizer(disk, folder.path().string())->special(); };
  EXPECT_EQ(special().end, 1);
  EXPECT_EQ(special().mask, 2);
  EXPECT_EQ(special().pad, 3);
  EXPECT_EQ(special().unknown, 0);
  EXPECT_EQ(special().begin, std::nullopt);
  write("special_tokens_map.json", R"({"eos_token": "a", "mask_token": "a"})");
  write("tokenizer_config.json", R"({"eos_token": {"content": "stop"}, "pad_token": null, "bos_token": "nowhere"})");
  EXPECT_EQ(special().end, 5);
  EXPECT_EQ(special().mask, 4);
  EXPECT_EQ(special().pad, 3);
  EXPECT_EQ(special().begin, std::nullopt);
  // They speak of the tokenizer with the usual name, not of any file that lies there.
  write("other.json", plain);
  EXPECT_EQ(open_tokenizer(disk, (folder.path() / "other.json").string())->end_of_text(), 1);
}

TEST(OpenTokenizer, BytesAsJsonAreBytes) {
  const auto bytes = parse_tokenizer(bytes_json(false), "bytes.json");
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_THAT(bytes->encode("a\xFF"), ElementsAre(97, 255));
  const auto masked = parse_tokenizer(bytes_json(true), "masked.json");
  EXPECT_EQ(masked->special().mask, 256);
  EXPECT_EQ(masked->vocab(), 257);
  EXPECT_THAT(masked->encode("é z"), ElementsAre(0xC3, 0xA9, ' ', 'z'));
  EXPECT_EQ(masked->decode(masked->encode("é z\n")), "é z\n");
}

TEST(OpenTokenizer, NamesWhatIsMissing) {
  io::PosixFileSystem disk;
  EXPECT_EQ(open_tokenizer(disk, "bytes")->vocab(), 256);
  EXPECT_THAT(open_tokenizer(disk, "bytes")->encode("a\xFF"), ElementsAre(97, 255));
  EXPECT_THAT(refusal([&] { open_tokenizer(disk, "/nowhere/tokenizer.json"); }), HasSubstr("/nowhere/tokenizer.json"));
  EXPECT_EQ(open_tokenizer(disk, (kGolden / "gpt2").string())->vocab(), 420);  // a folder: the tokenizer in it
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
