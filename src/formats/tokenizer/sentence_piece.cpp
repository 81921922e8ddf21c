#include "formats/tokenizer/sentence_piece.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "formats/tokenizer/charsmap.h"
#include "formats/tokenizer/pool.h"
#include "formats/tokenizer/sentence_piece_proto.h"
#include "formats/tokenizer/unigram.h"
#include "formats/tokenizer/utf8.h"
#include "formats/tokenizer/word_cache.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::size_t kLongestPieceText = std::size_t{1} << 28;

// A stretch of text that is one symbol while pairs are merged.
struct PieceStretch {
  std::int32_t begin = 0;
  std::int32_t size = 0;  // 0: merged into its left neighbour
  std::int32_t previous = -1;
  std::int32_t next = -1;
  bool frozen = false;  // user-defined: never merged
};

struct Candidate {
  std::uint32_t order = 0;  // smaller for a greater score
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t size = 0;

  bool operator>(const Candidate& other) const { return order != other.order ? order > other.order : left > other.left; }
};

struct PieceWorkspace {
  WordCache cache;
  std::string text;
  std::vector<PieceStretch> stretches;
  std::vector<Candidate> heap;
  std::vector<UnigramStep> path;
};

// Numbers that sort the other way round.
std::uint32_t descending(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // -0 becomes +0
  return ~((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u);
}

bool goes_on_after_space(std::string_view piece) {
  for (std::size_t at = piece.find(kSpaceMark, 1); at != std::string_view::npos; at = piece.find(kSpaceMark, at + 1)) {
    if (at < kSpaceMark.size() || piece.substr(at - kSpaceMark.size(), kSpaceMark.size()) != kSpaceMark) return true;
  }
  return false;
}

// Of a piece such as <0x0A>.
char byte_of(std::string_view text) {
  int value = 0;
  for (const char c : text.substr(3, 2)) value = value * 16 + (c <= '9' ? c - '0' : c - 'A' + 10);
  return static_cast<char>(value);
}

bool is_byte_text(std::string_view text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && digit(text[3]) && digit(text[4]) && text[5] == '>';
}

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name), proto_(parse_sentence_piece(bytes_, name)) {
    if (proto_.model_type != 1 && proto_.model_type != 2) {
      base::bad_input("'{}' is a SentencePiece model of type {}; supported are 1 (unigram) and 2 (BPE)", name, proto_.model_type);
    }
    add_pieces();
    if (proto_.byte_fallback) find_bytes();
    charsmap_ = Charsmap(proto_.charsmap, name);
    const bool symbols = std::find(begins_user_defined_.begin(), begins_user_defined_.end(), true) != begins_user_defined_.end();
    read_special();
    only_spaces_ = charsmap_.empty() && !proto_.remove_extra_whitespaces && !symbols;
  }

  std::string describe() const override {
    return fmt::format("SentencePiece {}, {} tokens", proto_.model_type == 2 ? "BPE" : "unigram", vocab());
  }
  std::int64_t vocab() const override { return std::ssize(proto_.pieces); }

  std::optional<std::int32_t> token_id(std::string_view token) const override {
    const std::int32_t id = all_.find(token);
    return id == TextTable::kNone ? std::nullopt : std::optional(id);
  }
  std::string token(std::int32_t id) const override {
    return id >= 0 && id < vocab() ? std::string(proto_.pieces[static_cast<std::size_t>(id)].text) : std::string();
  }
  std::vector<std::int32_t> before() const override {
    if (proto_.bos_id < 0 || proto_.bos_id >= vocab()) return {};
    return {static_cast<std::int32_t>(proto_.bos_id)};
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    if (text.size() > kLongestPieceText)
      base::bad_input("a text of {} bytes is too long to encode at once; at most {} are", text.size(), kLongestPieceText);
    if (!valid_utf8(text)) return encode(repair_utf8(text), ids);
    const Pool<PieceWorkspace>::Lease lease = pool_.take();
    PieceWorkspace& work = *lease;
    normalise(text, work.text);
    if (work.text.size() > static_cast<std::size_t>(INT32_MAX))
      base::bad_input("'{}': a text of {} bytes grows too long", name_, text.size());
    const std::size_t first = ids.size();
    if (proto_.model_type == 2) {
      encode_words(work, ids);
    } else {
      unigram_->encode(work.text, work.path);
      for (const UnigramStep& step : work.path) put(step.id, std::string_view(work.text).substr(step.begin, step.end - step.begin), ids);
    }
    // A run of unknown pieces is one.
    const auto both_unknown = [&](std::int32_t a, std::int32_t b) { return a == unknown_ && b == unknown_; };
    ids.erase(std::unique(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), both_unknown), ids.end());
  }

  std::string decode(std::span<const std::int32_t> ids, bool special) const override {
    std::string text;
    std::string bytes;
    bool at_begin = true;
    bool space_dropped = false;
    const auto flush = [&] {
      text += decode_bytes(bytes);
      bytes.clear();
    };
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab()) continue;
      const Piece& piece = proto_.pieces[static_cast<std::size_t>(id)];
      if (piece.type == PieceType::byte) {
        bytes += byte_of(piece.text);
        continue;
      }
      flush();
      if (space_dropped || !text.empty()) at_begin = false;
      text += surface(piece, special, at_begin, space_dropped);
    }
    flush();
    return text;
  }

 private:
  void read_special() {
    const auto one_of_ours = [&](std::int64_t id) {
      return id >= 0 && id < vocab() ? std::optional(static_cast<std::int32_t>(id)) : std::nullopt;
    };
    special_ = {.begin = one_of_ours(proto_.bos_id),
                .end = one_of_ours(proto_.eos_id),
                .pad = one_of_ours(proto_.pad_id),
                .mask = {},
                .unknown = one_of_ours(unknown_)};
    find_special();
  }

  void add_pieces() {
    std::vector<UnigramPiece> unigrams;
    all_.reserve(proto_.pieces.size());
    mergeable_.reserve(proto_.pieces.size());
    splits_ = !proto_.whitespace_as_suffix && proto_.escape_whitespaces;
    for (std::size_t i = 0; i < proto_.pieces.size(); ++i) {
      const Piece& piece = proto_.pieces[i];
      const auto id = static_cast<std::int32_t>(i);
      if (!all_.add(piece.text, id)) base::bad_input("'{}': piece {} is \"{}\", which is there already", name_, i, piece.text);
      if (piece.type == PieceType::unknown) {
        if (unknown_ >= 0) base::bad_input("'{}' has two pieces for the unknown, {} and {}", name_, unknown_, i);
        unknown_ = id;
      }
      if (piece.type == PieceType::byte && !is_byte_text(piece.text)) {
        base::bad_input("'{}': piece {} is of the type byte, but is called \"{}\"; expected <0x00> to <0xFF>", name_, i, piece.text);
      }
      if (piece.type == PieceType::user_defined) {
        user_defined_.add(piece.text, id);
        begins_user_defined_[static_cast<std::uint8_t>(piece.text[0])] = true;
      }
      const bool usable = piece.type == PieceType::normal || piece.type == PieceType::user_defined || piece.type == PieceType::unused;
      if (!usable) continue;
      mergeable_.add(piece.text, id);
      splits_ = splits_ && !goes_on_after_space(piece.text);
      if (piece.type != PieceType::unused) unigrams.push_back({piece.text, id, piece.score, piece.type == PieceType::user_defined});
    }
    if (unknown_ < 0) base::bad_input("'{}' has no piece for the unknown", name_);
    if (proto_.model_type == 1) unigram_.emplace(unigrams, unknown_);
  }

  void find_bytes() {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::int32_t id = all_.find(fmt::format("<0x{:02X}>", byte));
      if (id == TextTable::kNone || proto_.pieces[static_cast<std::size_t>(id)].type != PieceType::byte) {
        base::bad_input("'{}' is to write unknown characters as bytes, but has no piece <0x{:02X}>", name_, byte);
      }
      byte_ids_[byte] = id;
    }
  }

  ByteTrie::Match user_defined_at(std::string_view text) const {
    return begins_user_defined_[static_cast<std::uint8_t>(text[0])] ? user_defined_.longest(text) : ByteTrie::Match{};
  }

  // What stands for the beginning of `input`, and how many bytes of it that is.
  Charsmap::Rule normalise_prefix(std::string_view input) const {
    const ByteTrie::Match symbol = user_defined_at(input);
    if (symbol.length > 0) return {symbol.length, input.substr(0, symbol.length)};
    const Charsmap::Rule rule = charsmap_.longest(input);
    if (rule.length > 0) return {whole_characters(input, rule.length), rule.text};
    const std::size_t length = length_of(input[0]);
    return {length, input.substr(0, length)};
  }

  // Rules of a well-made file end where characters do; those of another one must not cut one in two.
  static std::size_t whole_characters(std::string_view input, std::size_t length) {
    while (length < input.size() && (static_cast<std::uint8_t>(input[length]) & 0xC0) == 0x80) ++length;
    return length;
  }

  void normalise(std::string_view input, std::string& out) const {
    out.clear();
    const bool trim = proto_.remove_extra_whitespaces;
    while (trim && !input.empty()) {
      const Charsmap::Rule prefix = normalise_prefix(input);
      if (prefix.text != " ") break;
      input.remove_prefix(prefix.length);
    }
    if (input.empty()) return;
    const std::string_view space = proto_.escape_whitespaces ? kSpaceMark : std::string_view(" ");
    if (proto_.add_dummy_prefix && !proto_.whitespace_as_suffix) out += space;
    if (only_spaces_) return replace_spaces(input, space, out);
    bool after_space = trim;
    while (!input.empty()) {
      const Charsmap::Rule prefix = normalise_prefix(input);
      std::string_view text = prefix.text;
      while (after_space && text.starts_with(' ')) text.remove_prefix(1);
      for (const char byte : text) {
        if (byte == ' ') {
          out += space;
        } else {
          out += byte;
        }
      }
      if (!text.empty()) after_space = trim && text.ends_with(' ');
      input.remove_prefix(prefix.length);
    }
    while (trim && std::string_view(out).ends_with(space)) out.resize(out.size() - space.size());
    if (proto_.add_dummy_prefix && proto_.whitespace_as_suffix) out += space;
  }

  // All that is left of normalising where there are no rules.
  void replace_spaces(std::string_view input, std::string_view space, std::string& out) const {
    for (std::size_t at = input.find(' '); at != std::string_view::npos; at = input.find(' ')) {
      out.append(input.substr(0, at)).append(space);
      input.remove_prefix(at + 1);
    }
    out += input;
    if (proto_.add_dummy_prefix && proto_.whitespace_as_suffix) out += space;
  }

  void put(std::int32_t id, std::string_view text, std::vector<std::int32_t>& ids) const {
    if (id != unknown_ || !proto_.byte_fallback) return ids.push_back(id);
    for (const char byte : text) ids.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
  }

  // Where no piece goes on after a space mark, words can be merged one by one, and remembered.
  void encode_words(PieceWorkspace& work, std::vector<std::int32_t>& ids) const {
    std::string_view rest = work.text;
    while (!rest.empty()) {
      const std::size_t end = splits_ ? word_end(rest) : rest.size();
      work.cache.encode(rest.substr(0, end), rest.size(), ids, [&](std::string_view word) { encode_word(word, work, ids); });
      rest.remove_prefix(end);
    }
  }

  static std::size_t word_end(std::string_view text) {
    std::size_t from = 0;
    while (text.substr(from).starts_with(kSpaceMark)) from += kSpaceMark.size();
    return std::min(text.find(kSpaceMark, from), text.size());
  }

  void encode_word(std::string_view word, PieceWorkspace& work, std::vector<std::int32_t>& ids) const {
    std::unordered_map<std::string_view, std::size_t> halves;  // of unused pieces that were made: the length of the left one
    find_stretches(word, work.stretches);
    merge(word, work, halves);
    for (const PieceStretch& stretch : work.stretches) {
      if (stretch.size > 0)
        put_unless_unused(word.substr(static_cast<std::size_t>(stretch.begin), static_cast<std::size_t>(stretch.size)), halves, ids);
    }
  }

  void find_stretches(std::string_view word, std::vector<PieceStretch>& stretches) const {
    stretches.clear();
    for (std::size_t at = 0; at < word.size();) {
      const ByteTrie::Match symbol = user_defined_at(word.substr(at));
      const std::size_t length = symbol.length > 0 ? symbol.length : length_of(word[at]);
      const auto index = static_cast<std::int32_t>(stretches.size());
      const bool last = at + length >= word.size();
      stretches.push_back(
          {static_cast<std::int32_t>(at), static_cast<std::int32_t>(length), index - 1, last ? -1 : index + 1, symbol.length > 0});
      at += length;
    }
  }

  void merge(std::string_view word, PieceWorkspace& work, std::unordered_map<std::string_view, std::size_t>& halves) const {
    std::vector<PieceStretch>& all = work.stretches;
    const auto at = [&](std::int32_t i) -> PieceStretch& { return all[static_cast<std::size_t>(i)]; };
    work.heap.clear();
    const auto propose = [&](std::int32_t left, std::int32_t right) {
      if (left < 0 || right < 0 || at(left).frozen || at(right).frozen) return false;
      const std::int32_t size = at(left).size + at(right).size;
      const std::string_view piece = word.substr(static_cast<std::size_t>(at(left).begin), static_cast<std::size_t>(size));
      const std::int32_t id = mergeable_.find(piece);
      if (id == TextTable::kNone) return false;
      const Piece& made = proto_.pieces[static_cast<std::size_t>(id)];
      work.heap.push_back({descending(made.score), left, right, size});
      if (made.type == PieceType::unused) halves[piece] = static_cast<std::size_t>(at(left).size);
      return true;
    };
    for (std::int32_t i = 1; i < std::ssize(all); ++i) propose(i - 1, i);
    std::make_heap(work.heap.begin(), work.heap.end(), std::greater<>());
    while (!work.heap.empty()) {
      std::pop_heap(work.heap.begin(), work.heap.end(), std::greater<>());
      const Candidate top = work.heap.back();
      work.heap.pop_back();
      PieceStretch& left = at(top.left);
      PieceStretch& right = at(top.right);
      if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) continue;
      left.size = top.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) at(left.next).previous = top.left;
      if (propose(left.previous, top.left)) std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>());
      if (propose(top.left, left.next)) std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>());
    }
  }

  // Unused pieces exist only to be merged further; one that is left over falls into its halves again.
  void put_unless_unused(std::string_view text, const std::unordered_map<std::string_view, std::size_t>& halves,
                         std::vector<std::int32_t>& ids) const {
    std::vector<std::string_view> waiting{text};
    while (!waiting.empty()) {
      const std::string_view piece = waiting.back();
      waiting.pop_back();
      const std::int32_t found = all_.find(piece);
      const std::int32_t id = found == TextTable::kNone ? unknown_ : found;
      const bool unused = found != TextTable::kNone && proto_.pieces[static_cast<std::size_t>(found)].type == PieceType::unused;
      const auto half = unused ? halves.find(piece) : halves.end();
      if (half == halves.end()) {
        put(id, piece, ids);
        continue;
      }
      waiting.push_back(piece.substr(half->second));
      waiting.push_back(piece.substr(0, half->second));
    }
  }

  // Bytes that make characters, and U+FFFD for each that does not.
  static std::string decode_bytes(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
      const std::size_t good = valid_prefix(bytes);
      text += bytes.substr(0, good);
      bytes.remove_prefix(good);
      if (bytes.empty()) break;
      text += kReplacement;
      bytes.remove_prefix(1);
    }
    return text;
  }

  std::string surface(const Piece& piece, bool special, bool at_begin, bool& space_dropped) const {
    space_dropped = false;
    if (piece.type == PieceType::control) return special ? std::string(piece.text) : std::string();
    if (piece.type == PieceType::unknown) return std::string(proto_.unknown_surface);
    std::string_view text = piece.text;
    if (at_begin && (proto_.add_dummy_prefix || proto_.remove_extra_whitespaces) && text.starts_with(kSpaceMark)) {
      text.remove_prefix(kSpaceMark.size());
      space_dropped = !proto_.remove_extra_whitespaces;  // then further ones are dropped, too
    }
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const bool space = text.substr(i).starts_with(kSpaceMark);
      out += space ? ' ' : text[i];
      i += space ? kSpaceMark.size() : 1;
    }
    return out;
  }

  std::string bytes_;  // what the pieces' texts point into
  std::string name_;
  SentencePieceProto proto_;
  TextTable all_;
  TextTable mergeable_;  // what text may become: normal, user-defined and unused pieces
  ByteTrie user_defined_;
  std::array<bool, 256> begins_user_defined_{};
  std::optional<Unigram<float>> unigram_;
  Charsmap charsmap_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::int32_t unknown_ = -1;
  bool splits_ = false;
  bool only_spaces_ = false;  // normalising changes nothing else
  mutable Pool<PieceWorkspace> pool_;
};

}  // namespace

std::shared_ptr<Tokenizer> read_sentence_piece(std::string_view bytes, const std::string& name) {
  return std::make_shared<SentencePiece>(bytes, name);
}

}  // namespace plimsoll::formats::tokenizer
