#include "base/stream_copy.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

// Every place of either end in a line of the cache, and sizes around the lines' own: exactly these bytes are written.
TEST(StreamCopy, CopiesWhatItIsGivenAndNothingElse) {
  constexpr std::byte kUntouched{0xee};
  std::vector<std::byte> from(400);
  for (std::size_t at = 0; at < from.size(); ++at) from[at] = static_cast<std::byte>(at * 37 % 251);
  for (std::size_t begin = 0; begin < 65; begin += 3) {
    for (std::size_t offset = 0; offset < 65; ++offset) {
      for (const std::size_t size : {0, 1, 15, 63, 64, 65, 127, 128, 200, 257}) {
        std::vector<std::byte> to(400, kUntouched);
        stream_copy(std::span(from).subspan(begin, size), to.data() + offset);
        std::vector<std::byte> expected(400, kUntouched);
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), size, expected.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(to, expected) << begin << ' ' << offset << ' ' << size;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::base
