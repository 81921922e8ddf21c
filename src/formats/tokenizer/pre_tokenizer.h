// The "pre_tokenizer" of a tokenizer.json: how text is cut into words before the model sees it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/pieces.h"

namespace plimsoll::formats::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
  virtual AtSpaces at_spaces() const { return AtSpaces::indifferent; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  // The last step would write bytes in the byte-level alphabet and was left out: the model takes bytes instead.
  bool ends_in_bytes = false;
};

// `json` is the value of "pre_tokenizer", which may be null. Refuses by name what it does not know.
// `model_takes_bytes`: a last step that only writes bytes in the byte-level alphabet may be left out.
PreTokenizers read_pre_tokenizers(const base::Json& json, bool model_takes_bytes);

}  // namespace plimsoll::formats::tokenizer
