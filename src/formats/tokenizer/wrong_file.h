// What a file is that was named as a tokenizer and is none: people name the file next to it, and the message should say which.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace plimsoll::formats::tokenizer {

// Ends with bad input that says what the JSON is, where it is no tokenizer.json.
void refuse_other_json(const base::Json& json, const std::string& name);

// What a text file is and what to name instead, as bad input; returns where the bytes are not text.
void refuse_text(std::string_view bytes, const std::string& name);

}  // namespace plimsoll::formats::tokenizer
