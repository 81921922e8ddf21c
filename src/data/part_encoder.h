// The ids of documents that come in parts, as if they came whole.
//
// Many tokenizers put something before a text, or join what stands on both sides of a cut. Each part but the first is therefore encoded
// behind the end of the one before it, whose ids are then taken away again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text_documents.h"
#include "formats/tokenizer/tokenizer.h"

namespace plimsoll::data {

class PartEncoder {
 public:
  explicit PartEncoder(const formats::tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids of `part`, which follows the one before.
  void encode(const TextPart& part, std::vector<std::int32_t>& ids);

 private:
  const formats::tokenizer::Tokenizer& tokenizer_;
  std::string before_;  // the end of the same document's part before
};

}  // namespace plimsoll::data
