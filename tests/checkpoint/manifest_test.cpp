// The manifest's text: what is written is read again, every bit of it counts, and sealed nonsense is refused all the same.
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "checkpoint/sha256.h"

namespace plimsoll::checkpoint {
namespace {

Manifest sample() {
  Manifest manifest;
  manifest.identity = {"run \"1\"", "abc"};
  manifest.step = 12;
  manifest.state = base::Json::object({{"epoch", 3}, {"lr", 0.1}, {"none", nullptr}});
  manifest.block_bytes = 512;
  manifest.files = {{1000, {0xDEADBEEF, 1}}, {0, {}}, {24, {7}}};
  manifest.tensors = {{"a", base::DType::f32, {2, 5}, {{0, 64, 0, 16}, {2, 0, 16, 24}}},
                      {"b", base::DType::bf16, {}, {{0, 128, 0, 2}}},
                      {"c", base::DType::u8, {0, 7}, {}}};
  return manifest;
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "m.json");
    return "";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
    return error.what();
  }
}

TEST(Manifest, ComesBackTheSame) {
  const std::string text = write_manifest(sample());
  EXPECT_EQ(parse_manifest(text, "m"), sample());
  EXPECT_EQ(write_manifest(parse_manifest(text, "m")), text);
  EXPECT_EQ(sample().find("b")->shape.size(), 0u);
  EXPECT_EQ(sample().find("bb"), nullptr);
  EXPECT_EQ(sample().data_bytes(), 1024);
}

// The form is a promise to later versions.
TEST(Manifest, TheTextIsFixed) {
  Manifest manifest;
  manifest.identity = {"r", "c"};
  manifest.step = 1;
  manifest.files = {{4, {0x01020304}}};
  manifest.tensors = {{"w", base::DType::f32, {1}, {{0, 0, 0, 4}}}};
  const std::string before = R"({"plimsoll_checkpoint":1,"sha256":")";
  const std::string after =
      R"(","run":"r","config":"c","step":1,"state":null,"block_bytes":1048576,"files":[{"bytes":4,"crc32c":"01020304"}],)"
      R"("tensors":[{"name":"w","dtype":"f32","shape":[1],"pieces":[[0,0,0,4]]}]})";
  EXPECT_EQ(write_manifest(manifest), before + Sha256().update(before + after).hex() + after);
}

TEST(Manifest, EveryBitCounts) {
  const std::string text = write_manifest(sample());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(refusal(flipped), "") << bit;
  }
}

TEST(Manifest, EveryTruncationAndTailCounts) {
  const std::string text = write_manifest(sample());
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_NE(refusal(text.substr(0, size)), "") << size;
  EXPECT_NE(refusal(text + "\n"), "");
}

TEST(Manifest, ANewerFormatIsToldFromADamagedOne) {
  const std::string body = R"({"something":"else"})";
  EXPECT_THROW(parse_manifest(seal_manifest(2, body), "m"), NewerFormat);
  EXPECT_NE(refusal(seal_manifest(2, body)).find("newer Plimsoll"), std::string::npos);
  std::string damaged = write_manifest(sample());
  damaged[damaged.find(":1,") + 1] = '9';
  EXPECT_NE(refusal(damaged).find("damaged"), std::string::npos);
  EXPECT_NE(refusal(seal_manifest(0, body)).find("version 0"), std::string::npos);
  EXPECT_NE(refusal(seal_manifest(-1, body)), "");
}

TEST(Manifest, ARightDigestDoesNotMakeItRight) {
  const auto with = [](const std::string& files, const std::string& tensors, const std::string& rest = R"("step":1,"block_bytes":512)") {
    return seal_manifest(1,
                         R"({"run":"r","config":"c","state":{},)" + rest + R"(,"files":[)" + files + R"(],"tensors":[)" + tensors + "]}");
  };
  const std::string file = R"({"bytes":600,"crc32c":"0000000011111111"})";
  const auto tensor = [](const std::string& pieces, const std::string& shape = "[4]", const std::string& name = "a") {
    return R"({"name":")" + name + R"(","dtype":"u8","shape":)" + shape + R"(,"pieces":[)" + pieces + "]}";
  };
  EXPECT_EQ(refusal(with(file, tensor("[0,0,0,4]"))), "");
  EXPECT_EQ(refusal(with(file, tensor("[0,0,0,4]") + "," + tensor("[0,0,0,4]", "[4]", "b"))), "");
  const std::vector<std::pair<std::string, std::string>> wrong{
      {with(file, tensor("[0,0,0,4]") + "," + tensor("[0,0,0,4]")), "names in order"},
      {with(file, tensor("[0,0,0,4]", "[4]", "b") + "," + tensor("[0,0,0,4]")), "names in order"},
      {with(file, tensor("[0,0,0,3]")), "4 bytes in all"},
      {with(file, tensor("[0,0,0,5]")), "4 bytes in all"},
      {with(file, tensor("")), "4 bytes in all"},
      {with(file, tensor("[0,0,1,4]")), "begins at byte 0"},
      {with(file, tensor("[0,0,0,2],[0,0,3,1]")), "begins at byte 2"},
      {with(file, tensor("[0,0,0,2],[0,0,1,3]")), "begins at byte 2"},
      {with(file, tensor("[1,0,0,4]")), "one of 1 files"},
      {with(file, tensor("[0,597,0,4]")), "within its file"},
      {with(file, tensor("[0,9223372036854775807,0,4]")), "a number of bytes"},
      {with(file, tensor("[0,-1,0,4]")), "a number of bytes"},
      {with(file, tensor("[0,0,0,4.0]")), "a number of bytes"},
      {with(file, tensor("[0,0,0]")), "[file, offset, begin, bytes]"},
      {with(file, tensor("", "[72057594037927936,72057594037927936]")), "64 bits"},
      {with(file, tensor("[0,0,0,1]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]")), "at most 16"},
      {with(R"({"bytes":600,"crc32c":"00000000"})", ""), "2 sums"},
      {with(R"({"bytes":600,"crc32c":"000000001111111g"})", ""), "hexadecimal"},
      {with(R"({"bytes":72057594037927936,"crc32c":""})", ""), "sums of 8 digits"},
      {with("", "", R"("step":-1,"block_bytes":512)"), "a number of bytes"},
      {with("", "", R"("step":1,"block_bytes":0)"), "512 bytes to 1 GiB"},
      {with("", "", R"("block_bytes":512)"), "step"},
      {seal_manifest(1, R"({"run":3})"), "expected a string"},
      {seal_manifest(1, R"({"run":"a","run":"b"})"), "a second time"},
      {seal_manifest(1, "{}"), "key"},
      {"", "no manifest"},
      {"{}", "no manifest"},
  };
  for (const auto& [text, says] : wrong) EXPECT_NE(refusal(text).find(says), std::string::npos) << says << "\n  " << refusal(text);
}

}  // namespace
}  // namespace plimsoll::checkpoint
