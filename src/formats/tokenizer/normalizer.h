// The "normalizer" of a tokenizer.json: how text is rewritten before it is cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace plimsoll::formats::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;  // valid UTF-8 in and out
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// `json` is the value of "normalizer", which may be null. Refuses by name what it does not know.
Normalizers read_normalizers(const base::Json& json);

std::string apply(const Normalizers& normalizers, std::string text);

}  // namespace plimsoll::formats::tokenizer
