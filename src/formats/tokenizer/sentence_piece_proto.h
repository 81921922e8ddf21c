// The parts of a SentencePiece ModelProto that matter, read from its bytes with every length checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::tokenizer {

enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string_view text;  // of the file's bytes
  float score = 0.0f;
  PieceType type = PieceType::normal;
};

struct SentencePieceProto {
  std::vector<Piece> pieces;
  // trainer_spec
  std::int64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 character
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string_view unknown_surface = " \xE2\x81\x87 ";
  std::int64_t bos_id = 1;
  std::int64_t eos_id = 2;
  std::int64_t pad_id = -1;
  // normalizer_spec
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// `bytes` must outlive the result. Bad input when they are not such a message.
SentencePieceProto parse_sentence_piece(std::string_view bytes, const std::string& name);

}  // namespace plimsoll::formats::tokenizer
