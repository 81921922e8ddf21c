// The "model" of a tokenizer.json: its vocabulary, and what makes ids of words with it.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "formats/tokenizer/model.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

// "BPE", "WordPiece", "Unigram" or "WordLevel"; anything else is refused by name.
std::string model_kind(const base::Json& json);

// Whether the model can be given bytes where the byte-level alphabet would be.
bool takes_bytes(const std::string& kind);

// Fills `vocabulary`, which must outlive the model. `byte_symbols`: words will come as bytes.
std::unique_ptr<Model> read_model(const base::Json& json, const std::string& name, bool byte_symbols, TextTable& vocabulary);

}  // namespace plimsoll::formats::tokenizer
