// SHA-256 (FIPS 180-4), for the one small text that everything else in a checkpoint is checked against.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll::checkpoint {

class Sha256 {
 public:
  Sha256& update(std::string_view data);
  std::string hex();  // of all that was given; ends the computation

 private:
  static constexpr std::size_t kBlock = 64;
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6A09E667u, 0xBB67AE85u, 0x3C6EF372u, 0xA54FF53Au,
                                      0x510E527Fu, 0x9B05688Cu, 0x1F83D9ABu, 0x5BE0CD19u};
  std::array<std::uint8_t, kBlock> pending_{};
  std::uint64_t length_ = 0;  // bytes given so far
};

}  // namespace plimsoll::checkpoint
