// The two sums against published values and against each other's plain form.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "checkpoint/block_sum.h"
#include "checkpoint/sha256.h"
#include "io/files.h"
#include "observe/crc32c.h"

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
  const auto check = [&](std::size_t first, std::size_t length) {
    const std::string_view part = std::string_view(bytes).substr(first, length);
    EXPECT_EQ(block_sum(io::as_bytes(part)), observe::crc32c(part)) << first << " " << length;
    const std::size_t cut = length * 2 / 3;
    EXPECT_EQ(block_sum(io::as_bytes(part.substr(cut)), block_sum(io::as_bytes(part.substr(0, cut)))), observe::crc32c(part)) << length;
    EXPECT_EQ(observe::crc32c(part.substr(cut), observe::crc32c(part.substr(0, cut))), observe::crc32c(part)) << length;
  };
  for (std::size_t length = 0; length < 300; ++length) check(length % 11, length);
  for (std::size_t lanes = 1; lanes <= 3; ++lanes) {
    for (std::size_t extra = 0; extra < 20; ++extra) check(extra, lanes * 3 * 4096 + extra - 10);
  }
}

}  // namespace
}  // namespace plimsoll::checkpoint
