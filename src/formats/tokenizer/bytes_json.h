// Bytes as a tokenizer.json, for programs that know no other tokenizers: every byte is a token, and its id is the byte.
#pragma once

#include <string>

#include "base/json.h"

namespace plimsoll::formats::tokenizer {

// `mask`: with the token [MASK] behind the bytes.
std::string bytes_json(bool mask);

// Whether a tokenizer.json is that, without a mask. Then texts that are not UTF-8 can be read and written as they are.
bool is_bytes_json(const base::Json& json);

}  // namespace plimsoll::formats::tokenizer
