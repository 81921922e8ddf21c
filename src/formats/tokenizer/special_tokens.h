// How SpecialTokens are found; for the tokenizers themselves.
#pragma once

#include "formats/tokenizer/tokenizer.h"

namespace plimsoll::formats::tokenizer {

// Tokens with the names that such tokens usually have.
SpecialTokens usual_tokens(const Tokenizer& tokenizer);

// What `above` says counts.
void lay_over(SpecialTokens& below, const SpecialTokens& above);

// What tokenizer_config.json and special_tokens_map.json beside the tokenizer's file say; what is not in its vocabulary does not count.
SpecialTokens named_beside(io::FileSystem& file_system, const io::Path& file, const Tokenizer& tokenizer);

}  // namespace plimsoll::formats::tokenizer
