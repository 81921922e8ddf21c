#include "formats/megatron_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/byte_tokenizer.h"
#include "formats/token_file.h"
#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

struct IndexFields {
  std::string magic = "MMIDIDX\0\0"s;
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> marks;
  bool modes = false;
};

std::string index_bytes(const IndexFields& fields) {
  std::string out = fields.magic;
  put(out, fields.version);
  put(out, fields.type);
  put(out, static_cast<std::uint64_t>(fields.lengths.size()));
  put(out, static_cast<std::uint64_t>(fields.marks.size()));
  for (const auto length : fields.lengths) put(out, length);
  for (const auto offset : fields.offsets) put(out, offset);
  for (const auto mark : fields.marks) put(out, mark);
  if (fields.modes) out.append(fields.lengths.size(), '\0');
  return out;
}

// Three sequences of 2, 0 and 3 tokens in two documents.
IndexFields small_index() {
  IndexFields fields;
  fields.lengths = {2, 0, 3};
  fields.offsets = {0, 4, 4};
  fields.marks = {0, 1, 3};
  return fields;
}

TEST(MegatronTokens, RoundTripsWithDocuments) {
  std::mt19937 random(3);
  struct Type {
    std::uint8_t code;
    std::int64_t width;
    std::string (*pack)(const std::vector<std::int32_t>&);
    std::int32_t vocab;
  };
  const std::vector<Type> types{{1, 1, packed<std::uint8_t>, 256},
                                {3, 2, packed<std::int16_t>, 32768},
                                {4, 4, packed<std::int32_t>, 200000},
                                {5, 8, packed<std::int64_t>, 200000},
                                {8, 2, packed<std::uint16_t>, 65536}};
  for (int trial = 0; trial < 40; ++trial) {
    const Type& type = types[static_cast<std::size_t>(trial) % types.size()];
    TokenFolder folder;
    IndexFields fields;
    fields.type = type.code;
    fields.modes = trial % 3 == 0;
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> starts;
    for (std::size_t sequence = 0; sequence < 1 + random() % 20; ++sequence) {
      const bool begins_document = sequence == 0 || random() % 2 == 0;
      if (begins_document) fields.marks.push_back(static_cast<std::int64_t>(sequence));
      const auto more = random_ids(random, 1 + random() % 50, type.vocab);
      if (begins_document) starts.push_back(std::ssize(ids));
      fields.offsets.push_back(std::ssize(ids) * type.width);
      fields.lengths.push_back(static_cast<std::int32_t>(more.size()));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    fields.marks.push_back(std::ssize(fields.lengths));
    folder.put_file("d.bin", type.pack(ids));
    folder.put_file("d.idx", index_bytes(fields));
    for (const char* name : {"d.bin", "d.idx", "d"}) {
      const io::Path path = folder.path() / name;
      EXPECT_EQ(recognise_token_file(folder.disk, path), TokenFormat::megatron);
      const auto source = open_token_file(folder.disk, path);
      EXPECT_TRUE(reads_like(*source, ids, random));
      EXPECT_EQ(std::vector<std::int64_t>(source->document_starts().begin(), source->document_starts().end()), starts);
    }
    const auto by_pattern = open_tokens(folder.disk, {(folder.path() / "d.*").string()}, {}, open_byte_text);
    EXPECT_EQ(by_pattern->size(), std::ssize(ids));  // the pattern finds two files, but one dataset
  }
}

TEST(MegatronTokens, SequencesMayLieInAnyOrder) {
  TokenFolder folder;
  std::mt19937 random(4);
  IndexFields fields;
  fields.lengths = {2, 3, 1, 2};
  fields.offsets = {6, 0, 6, 8};  // 2 and 3 follow each other; token 3 is used twice
  fields.marks = {0, 2, 4};
  folder.put_file("d.bin", packed<std::uint16_t>({10, 11, 12, 13, 14, 15}));
  folder.put_file("d.idx", index_bytes(fields));
  const auto source = open_token_file(folder.disk, folder.path() / "d");
  EXPECT_TRUE(reads_like(*source, {13, 14, 10, 11, 12, 13, 14, 15}, random));
  ASSERT_EQ(source->document_starts().size(), 2u);
  EXPECT_EQ(source->document_starts()[1], 5);
}

TEST(MegatronTokens, EmptySequencesMakeNoDocuments) {
  TokenFolder folder;
  IndexFields fields = small_index();
  fields.marks = {0, 1, 2, 3, 3};
  folder.put_file("d.bin", packed<std::uint16_t>({1, 2, 3, 4, 5}));
  folder.put_file("d.idx", index_bytes(fields));
  const auto source = open_token_file(folder.disk, folder.path() / "d");
  ASSERT_EQ(source->document_starts().size(), 2u);
  EXPECT_EQ(source->document_starts()[0], 0);
  EXPECT_EQ(source->document_starts()[1], 2);
}

TEST(MegatronTokens, WrongIndexesAreRefused) {
  TokenFolder folder;
  folder.put_file("d.bin", packed<std::uint16_t>({1, 2, 3, 4, 5}));
  const auto message = [&](const IndexFields& fields) {
    folder.put_file("d.idx", index_bytes(fields));
    return refusal([&] { open_token_file(folder.disk, folder.path() / "d.idx"); });
  };
  EXPECT_EQ(message(small_index()), "(no error)");
  const auto changed = [&](auto&& change) {
    IndexFields fields = small_index();
    change(fields);
    return message(fields);
  };
  EXPECT_THAT(changed([](IndexFields& f) { f.version = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(changed([](IndexFields& f) { f.type = 7; }), HasSubstr("type 7"));
  EXPECT_THAT(changed([](IndexFields& f) { f.type = 0; }), HasSubstr("type 0"));
  EXPECT_THAT(changed([](IndexFields& f) { f.lengths[2] = 4; }), HasSubstr("has 10 bytes"));
  EXPECT_THAT(changed([](IndexFields& f) { f.lengths[0] = -1; }), HasSubstr("-1 tokens"));
  EXPECT_THAT(changed([](IndexFields& f) { f.offsets[0] = -2; }), HasSubstr("byte -2"));
  EXPECT_THAT(changed([](IndexFields& f) { f.offsets[0] = INT64_MAX; }), HasSubstr("sequence 0"));
  EXPECT_THAT(changed([](IndexFields& f) { f.marks = {1, 3}; }), HasSubstr("mark 0 = 1"));
  EXPECT_THAT(changed([](IndexFields& f) { f.marks = {0, 2}; }), HasSubstr("mark 1 = 2"));
  EXPECT_THAT(changed([](IndexFields& f) { f.marks = {0, 2, 1, 3}; }), HasSubstr("mark 2 = 1"));
  EXPECT_THAT(changed([](IndexFields& f) { f.marks = {0, 99, 3}; }), HasSubstr("mark 1 = 99"));
  EXPECT_THAT(changed([](IndexFields& f) { f.lengths = {0, 0, 0}; }), HasSubstr("no tokens"));
  EXPECT_THAT(changed([](IndexFields& f) { f.magic[0] = 'X'; }), HasSubstr("no Megatron index"));
  io::remove_tree(folder.disk, folder.path() / "d.bin");
  EXPECT_THAT(message(small_index()), HasSubstr("No such file"));
}

TEST(MegatronTokens, EveryCutAndEveryFlippedByteOfTheIndexIsSafe) {
  TokenFolder folder;
  folder.put_file("d.bin", packed<std::uint16_t>({1, 2, 3, 4, 5}));
  const std::string whole = index_bytes(small_index());
  const auto try_bytes = [&](const std::string& bytes) {
    folder.put_file("d.idx", bytes);
    return refusal([&] { all_of(*open_token_file(folder.disk, folder.path() / "d.idx")); });
  };
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(try_bytes(whole.substr(0, size)), "(no error)") << size;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const unsigned char flip : {0x01, 0x80, 0xFF}) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ flip);
      try_bytes(wrong);  // refused or another legal index; never a read beyond the file
    }
  }
}

}  // namespace
}  // namespace plimsoll::formats
