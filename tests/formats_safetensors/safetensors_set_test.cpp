// Sets of files with an index: what is written is found again, and an index that lies is refused.
#include "formats/safetensors_set.h"

#include <gtest/gtest.h>

#include "formats_safetensors/bytes.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"

namespace plimsoll::formats {
namespace {

class SafetensorsSetTest : public ::testing::Test {
 protected:
  void put(const std::string& name, std::string_view content) { io::replace_file(disk_, folder_.path() / name, io::as_bytes(content)); }

  void write_four(std::int64_t max_bytes) {
    std::vector<TensorSpec> specs;
    for (const char* name : {"d", "c", "b", "a"}) specs.push_back({name, FileDType::u8, {4}});
    SafetensorsSetWriter writer(disk_, folder_.path(), specs, {.max_bytes = max_bytes});
    for (const TensorSpec& spec : specs) writer.write(spec.name, 0, io::as_bytes(std::string(4, spec.name[0])));
    writer.finish();
  }

  std::string refusal_of_folder() {
    try {
      SafetensorsSet::open(disk_, folder_.path());
      return "";
    } catch (const base::Error& error) {
      return error.what();
    }
  }

  std::vector<std::string> listing() {
    std::vector<std::string> names;
    for (const io::Entry& entry : disk_.list(folder_.path())) names.push_back(entry.name);
    return names;
  }

  tests::TemporaryFolder folder_;
  io::PosixFileSystem disk_;
};

TEST_F(SafetensorsSetTest, OneFileNeedsNoIndex) {
  write_four(16);
  EXPECT_EQ(listing(), std::vector<std::string>{"model.safetensors"});
  const SafetensorsSet set = SafetensorsSet::open(disk_, folder_.path());
  EXPECT_EQ(set.names(), (std::vector<std::string_view>{"a", "b", "c", "d"}));
}

TEST_F(SafetensorsSetTest, ShardsAreFilledInOrder) {
  write_four(9);
  EXPECT_EQ(listing(), (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                                 "model.safetensors.index.json"}));
  const SafetensorsSet set = SafetensorsSet::open(disk_, folder_.path());
  ASSERT_EQ(set.files().size(), 2u);
  EXPECT_NE(set.files()[0].find("d"), nullptr);
  EXPECT_NE(set.files()[1].find("a"), nullptr);
  for (const std::string_view name : set.names()) EXPECT_EQ(to_i32(set.at(name)), std::vector<std::int32_t>(4, name[0]));
  EXPECT_EQ(set.find("e"), nullptr);
  EXPECT_THROW(set.at("e"), base::Error);
}

TEST_F(SafetensorsSetTest, ATensorLargerThanTheLimitHasAFileToItself) {
  write_four(1);
  EXPECT_EQ(listing().size(), 5u);
  EXPECT_EQ(refusal_of_folder(), "");
}

TEST_F(SafetensorsSetTest, AnIndexThatLiesIsRefused) {
  write_four(9);
  const auto index = [&](const std::string& map) { put("model.safetensors.index.json", R"({"weight_map":{)" + map + "}}"); };
  const std::string first = R"("model-00001-of-00002.safetensors")";
  const std::string second = R"("model-00002-of-00002.safetensors")";
  index(R"("a":)" + second + R"(,"b":)" + second + R"(,"c":)" + first + R"(,"d":)" + first);
  EXPECT_EQ(refusal_of_folder(), "");
  index(R"("a":)" + first + R"(,"b":)" + second + R"(,"c":)" + first + R"(,"d":)" + first);
  EXPECT_NE(refusal_of_folder().find("'a', but it does not"), std::string::npos);
  index(R"("b":)" + second + R"(,"c":)" + first + R"(,"d":)" + first);
  EXPECT_NE(refusal_of_folder().find("does not name"), std::string::npos);
  for (const char* bad : {"../x.safetensors", "/etc/passwd", "..", "", "a/b", "x\\u0000y"}) {
    index(std::string(R"("a":")") + bad + "\"");
    EXPECT_NE(refusal_of_folder().find("in the same folder"), std::string::npos) << bad;
  }
  index(R"("a":"missing.safetensors")");
  EXPECT_NE(refusal_of_folder().find("missing.safetensors"), std::string::npos);
  index(R"("a":3)");
  EXPECT_NE(refusal_of_folder(), "");
  put("model.safetensors.index.json", "{}");
  EXPECT_NE(refusal_of_folder().find("weight_map"), std::string::npos);
}

TEST_F(SafetensorsSetTest, ATensorInTwoShardsIsRefused) {
  const std::string one = file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  const std::string two =
      file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy");
  put("one.safetensors", one);
  put("two.safetensors", two);
  EXPECT_NE(refusal_of_folder().find("holds 2 safetensors files"), std::string::npos);
  put("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_NE(refusal_of_folder().find("is in"), std::string::npos);
}

TEST_F(SafetensorsSetTest, PicklesAreNamedAndNotRead) {
  EXPECT_NE(refusal_of_folder().find("holds no safetensors file"), std::string::npos);
  put("pytorch_model.bin", "x");
  EXPECT_NE(refusal_of_folder().find("can carry code"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::formats
