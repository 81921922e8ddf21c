// The "decoder" of a tokenizer.json: how the texts of tokens become one text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace plimsoll::formats::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

using Decoders = std::vector<std::unique_ptr<Decoder>>;

// `json` is the value of "decoder", which may be null. Refuses by name what it does not know.
Decoders read_decoders(const base::Json& json);

}  // namespace plimsoll::formats::tokenizer
