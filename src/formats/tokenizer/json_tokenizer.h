// A tokenizer.json put together: added tokens, normalizer, pre-tokenizer, model, decoder and what stands around a text.
//
// "padding" and "truncation" of the file are about batches of a server and are left alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "formats/tokenizer/tokenizer.h"

namespace plimsoll::formats::tokenizer {

std::shared_ptr<Tokenizer> read_json_tokenizer(const base::Json& json, const std::string& name);

}  // namespace plimsoll::formats::tokenizer
