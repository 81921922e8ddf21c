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
  // Valid UTF-8 in and out. `at_start` becomes false where the result's first character is not what became of the text's first
  // (which was dropped, or replaced together with others): the package then no longer takes it for the beginning of its input.
  virtual std::string apply(std::string text, bool& at_start) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// `json` is the value of "normalizer", which may be null. Refuses by name what it does not know.
Normalizers read_normalizers(const base::Json& json);

std::string apply(const Normalizers& normalizers, std::string text, bool& at_start);

}  // namespace plimsoll::formats::tokenizer
