// What may stand behind a key of DeepSpeed's JSON.
//
// DeepSpeed's reader (pydantic) takes more than the type that a key is declared with: "true", "1" and 1 are a flag, "8" is a
// number. Values are converted likewise, once, before anybody looks at them.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "config/deepspeed_keys.h"

namespace plimsoll::config {

bool is_auto(const base::Json& value);  // or null: left to whoever calls DeepSpeed

// The value in the type that the key takes; nothing where it is of that type already, or cannot be converted.
std::optional<base::Json> converted(const base::Json& value, Takes takes);
bool fits(const base::Json& value, Takes takes);
std::string_view name_of(Takes takes);  // "true or false"

// DeepSpeed's default, or a block that is switched off.
bool is_usual(const base::Json& value, const DeepSpeedKey& key);

}  // namespace plimsoll::config
