// What the readers of a tokenizer.json's parts share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "formats/tokenizer/pattern.h"

namespace plimsoll::formats::tokenizer {

const std::string& type_of(const base::Json& json);

// A boolean member, or `otherwise` when it is absent or null.
bool flag(const base::Json& json, std::string_view key, bool otherwise);
// A text member, or empty when it is absent or null.
std::string text(const base::Json& json, std::string_view key);

// A token's id, within bounds that keep tables small.
std::int32_t read_id(const base::Json& json);

// {"String": "..."} or {"Regex": "..."}
std::unique_ptr<Pattern> read_pattern(const base::Json& json);

// Bad input that names the part: "tokenizer.json:3:14: the pre-tokenizer "UnicodeScripts" is not supported; ..."
[[noreturn]] void unsupported(const base::Json& json, std::string_view part, std::string_view name);

}  // namespace plimsoll::formats::tokenizer
