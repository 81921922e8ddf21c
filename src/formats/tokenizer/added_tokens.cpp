#include "formats/tokenizer/added_tokens.h"

#include <algorithm>

#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

std::uint16_t traits_before(std::string_view text) {
  if (text.empty()) return 0;
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return CharacterTable::get().traits(decode_at(text.data() + begin).code);
}

std::uint16_t traits_after(std::string_view text) {
  return text.empty() ? std::uint16_t{0} : CharacterTable::get().traits(decode_at(text.data()).code);
}

std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0 && (traits_before(text.substr(0, end)) & trait::kSpace) != 0) {
    --end;
    while (end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  }
  return end;
}

std::size_t space_at_start(std::string_view text) {
  std::size_t end = 0;
  while ((traits_after(text.substr(end)) & trait::kSpace) != 0) end += length_of(text[end]);
  return end;
}

bool stands_alone(std::string_view text, const Range& found) {
  return (traits_before(text.substr(0, found.begin)) & trait::kWord) == 0 && (traits_after(text.substr(found.end)) & trait::kWord) == 0;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const Json& json) {
  std::vector<AddedToken> tokens;
  for (const Json& item : json.as_array()) {
    AddedToken token;
    token.id = read_id(item.at("id"));
    token.content = item.at("content").as_string();
    token.single_word = flag(item, "single_word", false);
    token.lstrip = flag(item, "lstrip", false);
    token.rstrip = flag(item, "rstrip", false);
    token.special = flag(item, "special", false);
    token.normalized = flag(item, "normalized", !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::string text_of(const AddedToken& token, const Normalizers& normalizers) {
  bool at_start = true;
  return token.normalized ? apply(normalizers, token.content, at_start) : token.content;
}

TokenFinder::TokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizers& normalizers) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    const std::string content = text_of(token, normalizers);
    if (content.empty()) continue;
    if (trie_.walk(content) == ByteTrie::kNone || trie_.value(trie_.walk(content)) == ByteTrie::kNone) {
      trie_.add(content, static_cast<std::int32_t>(tokens_.size()));
    }
    begins_[static_cast<std::uint8_t>(content[0])] = true;
    tokens_.push_back(token);
  }
  if (std::count(begins_.begin(), begins_.end(), true) == 1) {
    only_begin_ = static_cast<char>(std::find(begins_.begin(), begins_.end(), true) - begins_.begin());
  }
}

std::size_t TokenFinder::next_candidate(std::string_view text, std::size_t at) const {
  if (only_begin_) return std::min(text.find(*only_begin_, at), text.size());
  while (at < text.size() && !begins_[static_cast<std::uint8_t>(text[at])]) ++at;
  return at;
}

void TokenFinder::find(std::string_view text, std::vector<Section>& sections) const {
  std::size_t done = 0;
  for (std::size_t at = tokens_.empty() ? text.size() : next_candidate(text, 0); at < text.size(); at = next_candidate(text, at)) {
    const ByteTrie::Match match = trie_.longest(text.substr(at));
    if (match.value == ByteTrie::kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.value)];
    Range found{at, at + match.length};
    at = found.end;
    if (token.single_word && !stands_alone(text, found)) continue;
    if (token.lstrip) found.begin = std::max(space_at_end(text.substr(0, found.begin)), done);
    if (token.rstrip) found.end += space_at_start(text.substr(found.end));
    if (done < found.begin) sections.push_back({{done, found.begin}});
    // What an earlier token took along is not there for a later one, which then has nothing to stand for.
    if (found.begin < found.end) sections.push_back({found, token.id});
    done = found.end;
  }
  if (done < text.size()) sections.push_back({{done, text.size()}});
}

}  // namespace plimsoll::formats::tokenizer
