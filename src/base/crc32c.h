// CRC-32C (Castagnoli), as TFRecord files need it: a few bytes per step, so a table is fast enough.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll::base {

// `before` is the checksum of what came before `data`.
std::uint32_t crc32c(std::string_view data, std::uint32_t before = 0);

// The rotation and offset that TFRecord puts on a checksum stored beside its own data.
std::uint32_t masked_crc32c(std::string_view data);

}  // namespace plimsoll::base
