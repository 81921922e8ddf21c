#include "formats/tokenizer/unigram_words.h"

#include "base/error.h"

namespace plimsoll::formats::tokenizer {

namespace {

std::vector<UnigramPiece> pieces_of(const TextTable& vocabulary, const std::vector<double>& scores) {
  std::vector<UnigramPiece> pieces;
  pieces.reserve(scores.size());
  for (std::int32_t id = 0; id < vocabulary.limit(); ++id) {
    pieces.push_back({.text = vocabulary.text_of(id), .id = id, .score = scores[static_cast<std::size_t>(id)]});
  }
  return pieces;
}

}  // namespace

UnigramWords::UnigramWords(const TextTable& vocabulary, const std::vector<double>& scores, const UnigramOptions& options)
    : vocabulary_(vocabulary),
      name_(options.name),
      unknown_(options.unknown.value_or(vocabulary.limit())),
      byte_fallback_(options.byte_fallback),
      unigram_(pieces_of(vocabulary, scores), unknown_) {}

void UnigramWords::encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  scratch.cache.encode(word, readable, ids, [&](std::string_view anew) { encode_anew(anew, scratch, ids); });
}

void UnigramWords::encode_anew(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  unigram_.encode(word, scratch.path);
  for (std::size_t i = 0; i < scratch.path.size(); ++i) {
    const UnigramStep& step = scratch.path[i];
    if (step.id != unknown_) {
      ids.push_back(step.id);
      continue;
    }
    while (i + 1 < scratch.path.size() && scratch.path[i + 1].id == unknown_) ++i;
    put(word.substr(step.begin, scratch.path[i].end - step.begin), ids);
  }
}

// A run of unknown characters, or the unknown token's own text, which is no run and has no bytes to fall back to.
void UnigramWords::put(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = vocabulary_.find(text);
  if (whole != TextTable::kNone) return ids.push_back(whole);
  const std::size_t before = ids.size();
  for (std::size_t i = 0; byte_fallback_ && i < text.size(); ++i) {
    const std::int32_t id = vocabulary_.find(fmt::format("<0x{:02X}>", static_cast<std::uint8_t>(text[i])));
    if (id == TextTable::kNone) {
      ids.resize(before);
      break;
    }
    ids.push_back(id);
  }
  if (ids.size() > before) return;
  if (unknown_ == vocabulary_.limit()) {
    base::bad_input("'{}' cannot write \"{}\": no pieces make it, and the vocabulary has no token for the unknown", name_, text);
  }
  ids.push_back(unknown_);
}

}  // namespace plimsoll::formats::tokenizer
