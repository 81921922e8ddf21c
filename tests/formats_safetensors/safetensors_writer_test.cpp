// The writer makes the reference writer's bytes: the golden files, which it wrote, are taken apart and written again.
#include "formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "formats_safetensors/bytes.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::formats {
namespace {

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  io::Path path() const { return folder_.path() / "out.safetensors"; }
  tests::TemporaryFolder folder_;
  io::PosixFileSystem disk_;
};

TEST_F(SafetensorsWriterTest, GoldenFilesComeOutByteForByte) {
  int files = 0;
  for (const io::Path& golden : io::expand_glob(disk_, PLIMSOLL_SOURCE_DIR "/tests/golden/data/*/*.safetensors")) {
    const Safetensors file = Safetensors::open(disk_, golden);
    std::vector<TensorSpec> specs(file.tensors().begin(), file.tensors().end());
    std::reverse(specs.begin(), specs.end());  // the order given must not matter
    SafetensorsWriter writer(disk_, path(), specs, file.metadata());
    for (const TensorView& view : file.tensors()) {
      const std::size_t half = view.data.size() / 2;
      writer.write(view.name, static_cast<std::int64_t>(half), view.data.subspan(half));
      writer.write(view.name, 0, view.data.first(half));
    }
    writer.finish();
    EXPECT_EQ(io::read_text(disk_, path()), io::read_text(disk_, golden)) << golden;
    ++files;
  }
  EXPECT_GE(files, 30);
}

TEST_F(SafetensorsWriterTest, WideTypesComeFirstAndNamesAreEscaped) {
  std::vector<TensorSpec> specs{
      {"a", FileDType::u8, {3}}, {"b\"\n\xc3\xa9", FileDType::bf16, {1}}, {"c", FileDType::f64, {}}, {"a0", FileDType::u8, {0}}};
  const std::string header = safetensors_header(specs, {{"k", "v"}});
  EXPECT_EQ(
      header.substr(8),
      "{\"__metadata__\":{\"k\":\"v\"},\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
      "\"b\\\"\\n\xc3\xa9\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[8,10]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[10,13]},\"a0\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[13,13]}}");
  EXPECT_EQ(refusal(header + std::string(13, 'x')), "");
  specs = {{"abc", FileDType::u8, {1}}};
  EXPECT_EQ(safetensors_header(specs, {}).substr(8), R"({"abc":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )");
}

TEST_F(SafetensorsWriterTest, UnfinishedFilesGoAway) {
  {
    SafetensorsWriter writer(disk_, path(), {{"a", FileDType::u8, {3}}});
  }
  EXPECT_TRUE(disk_.list(folder_.path()).empty());
}

TEST_F(SafetensorsWriterTest, AnyFailureLeavesTheOldFile) {
  io::replace_file(disk_, path(), io::as_bytes("old"));
  for (const io::FaultKind kind : {io::FaultKind::io_error, io::FaultKind::no_space, io::FaultKind::short_write}) {
    for (std::int64_t k = 1;; ++k) {
      io::FaultyFileSystem faulty(disk_, {.at = k, .kind = kind});
      try {
        SafetensorsWriter writer(faulty, path(), {{"a", FileDType::u8, {3}}});
        writer.write("a", io::as_bytes("xyz"));
        writer.finish();
      } catch (const io::IoError&) {
      }
      const std::string now = io::read_text(disk_, path());
      EXPECT_TRUE(now == "old" || refusal(now) == "") << k;
      io::replace_file(disk_, path(), io::as_bytes("old"));
      if (!faulty.reached()) break;
    }
  }
}

}  // namespace
}  // namespace plimsoll::formats
