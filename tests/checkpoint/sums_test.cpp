// The two sums against published values and against each other's plain form.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/block_sum.h"
#include "checkpoint/data_file.h"
#include "checkpoint/sha256.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::checkpoint {
namespace {

TEST(Sha256, PublishedValues) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256().update("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().update("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").hex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256().update(std::string(1'000'000, 'a')).hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  const std::string text(200, 'x');
  const std::string whole = Sha256().update(text).hex();
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Sha256().update(text.substr(0, cut)).update(text.substr(cut)).hex(), whole);
  }
}

TEST(BlockSum, PublishedValues) {
  EXPECT_EQ(block_sum(io::as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(block_sum({}), 0u);
  EXPECT_EQ(block_sum(std::vector<std::byte>(32)), 0x8A9136AAu);  // RFC 3720, B.4
}

TEST(BlockSum, EveryLengthAndAlignmentEqualsTheTable) {
  std::mt19937 random(1);
  std::string bytes(40'000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  std::vector<std::byte> copy(bytes.size() + 200);
  const auto check = [&](std::size_t first, std::size_t length) {
    const std::string_view part = std::string_view(bytes).substr(first, length);
    EXPECT_EQ(block_sum(io::as_bytes(part)), base::crc32c(part)) << first << " " << length;
    const std::size_t cut = length * 2 / 3;
    EXPECT_EQ(block_sum(io::as_bytes(part.substr(cut)), block_sum(io::as_bytes(part.substr(0, cut)))), base::crc32c(part)) << length;
    EXPECT_EQ(base::crc32c(part.substr(cut), base::crc32c(part.substr(0, cut))), base::crc32c(part)) << length;
    for (const std::size_t start : {std::size_t{0}, first + 1}) {  // where a copy goes past the caches, and where not
      std::byte* const to = copy.data() + (64 - reinterpret_cast<std::uintptr_t>(copy.data()) % 64) + start;
      std::fill(copy.begin(), copy.end(), std::byte{0x5a});
      EXPECT_EQ(copy_and_sum(io::as_bytes(part), to), base::crc32c(part)) << first << " " << length << " to " << start;
      EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(to), length), part);
      EXPECT_EQ(to[length], std::byte{0x5a});
      EXPECT_EQ(to[-1], std::byte{0x5a});
    }
  };
  for (std::size_t length = 0; length < 300; ++length) check(length % 11, length);
  for (std::size_t lanes = 1; lanes <= 3; ++lanes) {
    for (std::size_t extra = 0; extra < 20; ++extra) check(extra, lanes * 3 * 4096 + extra - 10);
  }
  for (std::size_t length = 500; length < 1'100; length += 7) check(length % 13, length);
}

// A large file is read from the page cache: its bytes arrive, a wrong one is found, and one that is cut short is refused.
TEST(DataFile, IsReadFromThePageCache) {
  const tests::TemporaryFolder folder;
  io::PosixFileSystem files;
  const io::Path path = folder.path() / "data";
  constexpr std::int64_t kBlock = 1 << 20;
  std::vector<std::byte> data(9'000'001);
  std::mt19937 random(2);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  DataFileWriter writer(files, path, kBlock);
  writer.append(data);
  const FileRecord record = writer.finish();
  const auto read_by = [&](io::FileSystem& file_system) {
    std::vector<std::byte> found(data.size());
    const Move move{.first = 0, .end = std::ssize(data), .to = found.data()};
    read_blocks(file_system, path, record, kBlock, {&move, 1}, Blocks::moved);
    return found;
  };
  const auto read = [&] { return read_by(files); };
  const io::Mapping mapping = files.map(path);
  ASSERT_TRUE(mapping.in_memory(mapping.bytes())) << "what was just written is cached";
  EXPECT_EQ(read(), data);
  // Opened, measured, and not to be mapped: it is read.
  io::FaultyFileSystem unmapped(files, {.at = 3, .kind = io::FaultKind::io_error});
  EXPECT_EQ(read_by(unmapped), data);
  EXPECT_TRUE(unmapped.fired());
  for (const std::int64_t place : {std::int64_t{0}, std::int64_t{5'555'555}, std::ssize(data) - 1}) {
    const std::byte right = data[static_cast<std::size_t>(place)];
    const std::byte wrong = right ^ std::byte{0x10};
    io::File file(files, path, io::OpenMode::write);
    file.write_at(place, {&wrong, 1});
    EXPECT_THROW(read(), base::Error) << place;
    file.write_at(place, {&right, 1});
  }
  EXPECT_EQ(read(), data);
  std::filesystem::resize_file(path, 8'999'999);
  EXPECT_THROW(read(), base::Error);
}

}  // namespace
}  // namespace plimsoll::checkpoint
