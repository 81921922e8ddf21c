#include "formats/tokenizer/word_level.h"

#include "base/error.h"

namespace plimsoll::formats::tokenizer {

WordLevel::WordLevel(const TextTable& vocabulary, const std::string& name, const std::string& unknown)
    : vocabulary_(vocabulary), name_(name), unknown_(vocabulary.find(unknown)) {}

void WordLevel::encode_word(std::string_view word, std::size_t /*readable*/, Scratch& /*scratch*/, std::vector<std::int32_t>& ids) const {
  std::int32_t id = vocabulary_.find(word);
  if (id == TextTable::kNone) id = unknown_;
  if (id == TextTable::kNone) base::bad_input("'{}': \"{}\" is not in the vocabulary, which has no token for unknown words", name_, word);
  ids.push_back(id);
}

}  // namespace plimsoll::formats::tokenizer
