// Base64 of RFC 4648, as files carry bytes inside JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::base {

// The bytes, or nothing where `text` is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace plimsoll::base
