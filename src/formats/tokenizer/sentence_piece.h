// SentencePiece .model files: a protocol buffer with pieces, how text is normalised, and whether to merge or to search.
//
// The message is read by hand, field by field, because it comes from strangers and only five of its parts matter:
// pieces, trainer_spec's few flags and normalizer_spec. BPE and unigram models are supported.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "formats/tokenizer/tokenizer.h"

namespace plimsoll::formats::tokenizer {

std::shared_ptr<Tokenizer> read_sentence_piece(std::string_view bytes, const std::string& name);

}  // namespace plimsoll::formats::tokenizer
