// Safetensors files as plain bytes, so that they can also be made wrong on purpose.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "formats/safetensors.h"
#include "io/files.h"

namespace plimsoll::formats {

inline std::string with_length(std::uint64_t length, std::string_view header, std::string_view data) {
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out.append(header).append(data);
}

inline std::string file_bytes(std::string_view header, std::string_view data = "") { return with_length(header.size(), header, data); }

inline io::Mapping mapping_of(std::string bytes) {
  auto keeper = std::make_shared<std::string>(std::move(bytes));
  return {io::as_bytes(*keeper), keeper};
}

inline Safetensors parse_bytes(std::string bytes) { return Safetensors::parse(mapping_of(std::move(bytes)), "test"); }

// The message with which bytes are refused; empty when they are accepted.
inline std::string refusal(std::string bytes) {
  try {
    parse_bytes(std::move(bytes));
    return "";
  } catch (const base::Error& error) {
    return error.kind() == base::ErrorKind::bad_input ? error.what() : "(another kind of error)";
  }
}

}  // namespace plimsoll::formats
