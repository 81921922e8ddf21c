#include "formats/tokenizer/sentence_piece_proto.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "formats/tokenizer/tables.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

// One field of a message: its number and its value, which of the two depends on the wire type.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t integer = 0;  // varint and fixed-width values
  std::string_view bytes;     // length-delimited values
  bool delimited = false;
};

class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : rest_(bytes), size_(bytes.size()), name_(name) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3, .integer = 0, .bytes = {}, .delimited = (key & 7) == 2};
    switch (key & 7) {
      case 0: field.integer = varint(); break;
      case 1: field.integer = fixed(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.integer = fixed(4); break;
      default: refuse();
    }
    if (field.number == 0) refuse();
    return true;
  }

  [[noreturn]] void refuse() const {
    base::bad_input(
        "'{}' is no SentencePiece model: it makes no sense at byte {} of a part of {} bytes; expected a tokenizer.json or a .model", name_,
        size_ - rest_.size(), size_);
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) refuse();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    std::memcpy(&value, take(count).data(), count);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  std::string_view rest_;
  std::size_t size_;
  const std::string& name_;
};

std::int64_t as_int(std::uint64_t value) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(value)); }

Piece parse_piece(std::string_view bytes, const std::string& name, std::size_t index) {
  Piece piece;
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    if (field.number == 1 && field.delimited) piece.text = field.bytes;
    if (field.number == 2 && !field.delimited) {
      const auto bits = static_cast<std::uint32_t>(field.integer);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
    if (field.number == 3 && !field.delimited) {
      if (field.integer < 1 || field.integer > 6)
        base::bad_input("'{}': piece {} has type {}; expected 1 to 6", name, index, field.integer);
      piece.type = static_cast<PieceType>(field.integer);
    }
  }
  if (piece.text.empty() || !valid_utf8(piece.text)) base::bad_input("'{}': piece {} is empty or not UTF-8", name, index);
  if (!std::isfinite(piece.score)) base::bad_input("'{}': the score of piece {} is not finite", name, index);
  return piece;
}

void parse_trainer(std::string_view bytes, const std::string& name, SentencePieceProto& proto) {
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    switch (field.number) {
      case 3: proto.model_type = as_int(field.integer); break;
      case 24: proto.whitespace_as_suffix = field.integer != 0; break;
      case 35: proto.byte_fallback = field.integer != 0; break;
      case 41: proto.bos_id = as_int(field.integer); break;
      case 42: proto.eos_id = as_int(field.integer); break;
      case 43: proto.pad_id = as_int(field.integer); break;
      case 44: proto.unknown_surface = field.bytes; break;
      default: break;
    }
  }
}

void parse_normalizer(std::string_view bytes, const std::string& name, SentencePieceProto& proto) {
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    switch (field.number) {
      case 2: proto.charsmap = field.bytes; break;
      case 3: proto.add_dummy_prefix = field.integer != 0; break;
      case 4: proto.remove_extra_whitespaces = field.integer != 0; break;
      case 5: proto.escape_whitespaces = field.integer != 0; break;
      default: break;
    }
  }
}

}  // namespace

SentencePieceProto parse_sentence_piece(std::string_view bytes, const std::string& name) {
  SentencePieceProto proto;
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    if (field.number <= 3 && !field.delimited) message.refuse();
    if (field.number == 1) proto.pieces.push_back(parse_piece(field.bytes, name, proto.pieces.size()));
    if (field.number == 2) parse_trainer(field.bytes, name, proto);
    if (field.number == 3) parse_normalizer(field.bytes, name, proto);
    if (std::ssize(proto.pieces) > kMostTokens) base::bad_input("'{}' has more than {} pieces", name, kMostTokens);
  }
  if (proto.pieces.empty()) base::bad_input("'{}' has no pieces; expected a SentencePiece model", name);
  return proto;
}

}  // namespace plimsoll::formats::tokenizer
