#include "data/text_documents.h"
#include "data/part_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/text_tokens.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::data {
namespace {

using formats::refusal;
using formats::TokenFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> documents_of(TokenFolder& folder, const io::Path& path, const TextOptions& options) {
  std::vector<std::string> documents;
  std::string document;
  std::int64_t last = 0;
  read_documents(folder.disk, path, options, [&](const TextPart& part, std::int64_t done) {
    EXPECT_GE(done, last);
    EXPECT_LE(part.text.size(), std::max(options.part_bytes, options.longest_document));
    last = done;
    document += part.text;
    if (!part.ends_document) return;
    documents.push_back(document);
    document.clear();
  });
  EXPECT_EQ(document, "");
  return documents;
}

TEST(TextDocuments, FilesLinesParagraphsAndJsonLines) {
  TokenFolder folder;
  const io::Path text = folder.put_file("t.txt", "one\r\ntwo\n\n \nthree\nfour\n\n\nfive");
  EXPECT_THAT(documents_of(folder, text, {}), ElementsAre("one\r\ntwo\n\n \nthree\nfour\n\n\nfive"));
  EXPECT_THAT(documents_of(folder, text, {.unit = DocumentUnit::line}), ElementsAre("one", "two", " ", "three", "four", "five"));
  EXPECT_THAT(documents_of(folder, text, {.unit = DocumentUnit::paragraph}), ElementsAre("one\ntwo", "three\nfour", "five"));
  const io::Path lines = folder.put_file("t.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"id\": 7, \"text\": \"c\"}");
  EXPECT_THAT(documents_of(folder, lines, {}), ElementsAre("a\nb", "c"));
  const io::Path other = folder.put_file("o.jsonl", "{\"content\": \"x\"}\n");
  EXPECT_THAT(documents_of(folder, other, {.field = "content"}), ElementsAre("x"));
}

TEST(TextDocuments, WrongLinesAreNamed) {
  TokenFolder folder;
  const auto reason = [&](std::string_view content) {
    const io::Path path = folder.put_file("w.jsonl", content);
    return refusal([&] { documents_of(folder, path, {.longest_document = 1000}); });
  };
  EXPECT_THAT(reason("{\"text\": \"a\"}\n{\"text\": 3}\n"), HasSubstr("w.jsonl:2"));
  EXPECT_THAT(reason("{\"text\": \"a\"}\n{\"text\": \"b\"\n"), HasSubstr("w.jsonl:2"));
  EXPECT_THAT(reason("[1]\n"), HasSubstr("\"text\""));
  EXPECT_THAT(reason(std::string(std::size_t{3} << 20, 'x')), HasSubstr("more than 1000 bytes"));
}

TEST(TextDocuments, LargeFilesComeInPartsThatAddUp) {
  TokenFolder folder;
  std::mt19937 random(2);
  std::string content;
  while (content.size() < (std::size_t{5} << 20))
    content += random() % 9 == 0 ? "\n" : random() % 5 == 0 ? "\xC3\xA9" : random() % 4 == 0 ? " " : "ab";
  const io::Path path = folder.put_file("large.txt", content);
  for (const bool spaces : {false, true}) {
    const TextOptions options{.cut_at_spaces = spaces, .part_bytes = 100'000};
    int parts = 0;
    std::string all;
    read_documents(folder.disk, path, options, [&](const TextPart& part, std::int64_t) {
      if (parts++ > 0 && !part.text.empty()) {
        EXPECT_EQ(spaces ? part.text[0] : all.back(), spaces ? ' ' : '\n');
      }
      EXPECT_LE(part.text.size(), options.part_bytes + (std::size_t{2} << 20));
      all += part.text;
    });
    EXPECT_GT(parts, 40);
    EXPECT_EQ(all, content);
  }
}

TEST(TextDocuments, CutsAreWhereTheTokenizerDoesNotMind) {
  EXPECT_EQ(cut_of("ab cd.e. f", true), 2u);  // between two letters, the last such space
  EXPECT_EQ(cut_of("ab\ncd. f", true), 3u);   // none: after a line
  EXPECT_EQ(cut_of("ab cd\nef g", false), 6u);
  EXPECT_EQ(cut_of("ab\ncd \n e\n", false), 3u);  // rather than among white space
  EXPECT_EQ(cut_of("ab\r\ncd\r\n", false), 8u);
  EXPECT_EQ(cut_of("abc\xC3\xA9\xC3\xA9", false), 5u);  // none: before the last character
  EXPECT_EQ(cut_of("a", false), 1u);
}

// A mark is put before a text, not before each part of it.
TEST(TextTokens, PartsGiveTheIdsOfTheWhole) {
  const auto tokenizer = formats::tokenizer::parse_tokenizer(
      R"({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first", "split": false},
          "model": {"type": "BPE", "vocab": {"\u2581": 0, "a": 1, "b": 2, "\n": 3, "ab": 4, "\u2581ab": 5, "bb": 6},
                    "merges": ["a b", "\u2581 ab", "b b"]}})",
      "t.json");
  const std::vector<std::string> parts{"ab ab\n", "ab\nbb ab\n", "", "b", "b\n"};
  std::string whole;
  std::vector<std::int32_t> ids;
  PartEncoder encoder(*tokenizer);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    whole += parts[i];
    encoder.encode({parts[i], i + 1 == parts.size()}, ids);
    if (i == 2) {
      EXPECT_EQ(ids, tokenizer->encode(whole));
    }
  }
  EXPECT_EQ(ids.size(), tokenizer->encode(whole).size() + 2);  // "bb" was cut in two, and nothing can be known of the second
  ids.clear();
  encoder.encode({"ab", true}, ids);
  EXPECT_EQ(ids, tokenizer->encode("ab"));  // another document
}

TEST(TextTokens, BytesAreMappedAndOthersEncoded) {
  TokenFolder folder;
  const auto bytes = formats::tokenizer::open_tokenizer(folder.disk, "bytes");
  const io::Path text = folder.put_file("t.txt", "hi");
  EXPECT_EQ(formats::all_of(*open_text(folder.disk, text, bytes)), (std::vector<std::int32_t>{'h', 'i'}));
  const auto pairs = formats::tokenizer::parse_tokenizer(
      R"({"added_tokens": [{"id": 3, "content": "</s>", "special": true}],
          "model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "hi": 2}, "merges": ["h i"]}})",
      "t.json");
  EXPECT_EQ(formats::all_of(*open_text(folder.disk, text, pairs)), (std::vector<std::int32_t>{2}));
  const io::Path lines = folder.put_file("t.jsonl", "{\"text\": \"hi\"}\n{\"text\": \"\"}\n{\"text\": \"h\"}\n");
  const auto source = open_text(folder.disk, lines, pairs);
  EXPECT_EQ(formats::all_of(*source), (std::vector<std::int32_t>{2, 3, 3, 0, 3}));
  EXPECT_THAT(source->document_starts(), ElementsAre(0, 2, 3));
  EXPECT_THAT(refusal([&] { open_text(folder.disk, folder.put_file("e.txt", ""), pairs); }), HasSubstr("empty"));
  EXPECT_THAT(refusal([&] { open_text(folder.disk, text, pairs, 0); }), HasSubstr("plimsoll data"));
}

}  // namespace
}  // namespace plimsoll::data
