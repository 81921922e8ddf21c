#include "formats/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "formats/tokenizer/byte_level.h"
#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Delimiter delimiter_of(const Json& json) {
  const std::string& name = json.as_string();
  if (name == "Removed") return Delimiter::removed;
  if (name == "Isolated") return Delimiter::isolated;
  if (name == "MergedWithPrevious") return Delimiter::merged_with_previous;
  if (name == "MergedWithNext") return Delimiter::merged_with_next;
  if (name == "Contiguous") return Delimiter::contiguous;
  json.fail_expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Characters of a kind, each a match of its own.
class TraitPattern final : public Pattern {
 public:
  explicit TraitPattern(std::uint16_t mask) : mask_(mask) {}
  AtSpaces at_spaces() const override { return (mask_ & trait::kSpace) != 0 ? AtSpaces::cuts : AtSpaces::indifferent; }
  void find(std::string_view text, std::vector<Range>& matches) const override {
    const CharacterTable& table = CharacterTable::get();
    for (std::size_t at = 0; at < text.size();) {
      const Character character = decode_at(text.data() + at);
      if (table.is(character.code, mask_)) matches.push_back({at, at + character.length});
      at += character.length;
    }
  }

 private:
  std::uint16_t mask_;
};

// `\w+|[^\w\s]+`, the words and the rest of the pre-tokenizer called Whitespace.
class WordPattern final : public Pattern {
 public:
  AtSpaces at_spaces() const override { return AtSpaces::cuts; }
  void find(std::string_view text, std::vector<Range>& matches) const override {
    const CharacterTable& table = CharacterTable::get();
    const auto kind_at = [&](std::size_t at, std::size_t& next) {
      const Character character = decode_at(text.data() + at);
      next = at + character.length;
      const std::uint16_t traits = table.traits(character.code);
      return (traits & trait::kWord) != 0 ? 1 : (traits & trait::kSpace) != 0 ? 0 : 2;
    };
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = 0;
      const int kind = kind_at(at, end);
      for (std::size_t next = 0; end < text.size() && kind_at(end, next) == kind;) end = next;
      if (kind != 0) matches.push_back({at, end});
      at = end;
    }
  }
};

// So many characters, then as many again.
class LengthPattern final : public Pattern {
 public:
  explicit LengthPattern(std::int64_t length) : length_(length) {}
  AtSpaces at_spaces() const override { return AtSpaces::unknown; }
  void find(std::string_view text, std::vector<Range>& matches) const override {
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      for (std::int64_t i = 0; i < length_ && end < text.size(); ++i) end += length_of(text[end]);
      matches.push_back({begin, end});
    }
  }

 private:
  std::int64_t length_;
};

// One piece cut by a pattern. `whole` collects matches and what lies between them, in order.
class Cutter {
 public:
  Cutter(Delimiter delimiter, bool invert) : delimiter_(delimiter), invert_(invert) {}

  void cut(const Range& piece, const std::vector<Range>& matches, std::vector<Range>& out) {
    parts_.clear();
    std::size_t end = piece.begin;
    for (const Range& match : matches) {
      const Range found{piece.begin + match.begin, piece.begin + match.end};
      if (found.begin > end) parts_.push_back({{end, found.begin}, invert_});
      parts_.push_back({found, !invert_});
      end = found.end;
    }
    if (end < piece.end) parts_.push_back({{end, piece.end}, invert_});
    join();
    for (const Part& part : parts_) {
      const bool dropped = delimiter_ == Delimiter::removed && part.delimits;
      if (!dropped && part.range.begin < part.range.end) out.push_back(part.range);
    }
  }

 private:
  struct Part {
    Range range;
    bool delimits = false;
  };

  void join() {
    switch (delimiter_) {
      case Delimiter::removed:
      case Delimiter::isolated: return;
      case Delimiter::contiguous: return join_forwards([](bool delimits, bool previous) { return delimits == previous; });
      case Delimiter::merged_with_previous: return join_forwards([](bool delimits, bool previous) { return delimits && !previous; });
      case Delimiter::merged_with_next:
        std::reverse(parts_.begin(), parts_.end());
        join_forwards([](bool delimits, bool previous) { return delimits && !previous; });
        std::reverse(parts_.begin(), parts_.end());
        return;
    }
  }

  template <typename Joins>
  void join_forwards(Joins joins) {
    std::size_t kept = 0;
    bool previous = false;
    for (const Part part : parts_) {
      if (kept > 0 && joins(part.delimits, previous)) {
        Range& range = parts_[kept - 1].range;
        range = {std::min(range.begin, part.range.begin), std::max(range.end, part.range.end)};
      } else {
        parts_[kept++] = part;
      }
      previous = part.delimits;
    }
    parts_.resize(kept);
  }

  Delimiter delimiter_;
  bool invert_;
  std::vector<Part> parts_;
};

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, Delimiter delimiter, bool invert = false)
      : pattern_(std::move(pattern)), delimiter_(delimiter), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    pieces.next.clear();
    const bool matches_are_pieces =
        pattern_->covers() && (delimiter_ == Delimiter::isolated || (delimiter_ == Delimiter::removed && invert_));
    Cutter cutter(delimiter_, invert_);
    for (const Range& piece : pieces.ranges) {
      pieces.matches.clear();
      if (matches_are_pieces && piece.begin == 0) {  // the usual case, a whole text: no copy
        pattern_->find(pieces.at(piece), pieces.next);
        continue;
      }
      pattern_->find(pieces.at(piece), pieces.matches);
      cutter.cut(piece, pieces.matches, pieces.next);
    }
    const bool first_stays = !pieces.ranges.empty() && !pieces.next.empty() && pieces.next.front().begin == pieces.ranges.front().begin;
    pieces.begins_input = pieces.begins_input && first_stays;
    pieces.ranges.swap(pieces.next);
  }
  AtSpaces at_spaces() const override { return pattern_->at_spaces(); }

 private:
  std::unique_ptr<Pattern> pattern_;
  Delimiter delimiter_;
  bool invert_;
};

// A step that writes each piece anew.
class Rewriting : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const final {
    std::string text;
    text.reserve(pieces.text.size() + pieces.text.size() / 2);
    bool first = pieces.begins_input;
    for (Range& piece : pieces.ranges) {
      const std::size_t begin = text.size();
      rewrite(pieces.at(piece), first, text);
      piece = {begin, text.size()};
      first = false;
    }
    pieces.own = std::move(text);
    pieces.text = pieces.own;
  }

 private:
  virtual void rewrite(std::string_view piece, bool begins_input, std::string& out) const = 0;
};

class PrefixSpace final : public Rewriting {
  void rewrite(std::string_view piece, bool, std::string& out) const override {
    if (!piece.starts_with(' ')) out += ' ';
    out += piece;
  }
};

class ByteAlphabet final : public Rewriting {
  void rewrite(std::string_view piece, bool, std::string& out) const override { out += bytes_to_characters(piece); }
};

enum class PrependMark { always, first, never };

class Metaspace final : public Rewriting {
 public:
  Metaspace(std::string mark, PrependMark prepend, bool split) : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

  AtSpaces at_spaces() const override { return split_ ? AtSpaces::cuts : AtSpaces::unknown; }

 private:
  void rewrite(std::string_view piece, bool begins_input, std::string& out) const override {
    const bool wanted = prepend_ == PrependMark::always || (prepend_ == PrependMark::first && begins_input);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(mark_)) out += mark_;
    for (const char byte : piece) {
      if (byte == ' ') {
        out += mark_;
      } else {
        out += byte;
      }
    }
  }

  std::string mark_;
  PrependMark prepend_;
  bool split_;  // the step that follows cuts at the marks
};

class Reader {
 public:
  void read(const Json& json) {
    if (json.is_null()) return;
    const std::string& type = type_of(json);
    for (const auto& [name, method] : kKinds) {
      if (name == type) return (this->*method)(json);
    }
    unsupported(json, "pre-tokenizer", type);
  }

  PreTokenizers finish(bool model_takes_bytes) {
    PreTokenizers result;
    result.ends_in_bytes = model_takes_bytes && !steps_.empty() && dynamic_cast<const ByteAlphabet*>(steps_.back().get()) != nullptr;
    if (result.ends_in_bytes) steps_.pop_back();
    result.steps = std::move(steps_);
    return result;
  }

 private:
  struct Kind {
    std::string_view name;
    void (Reader::*method)(const Json&);
  };

  template <typename Step, typename... Args>
  void add(Args&&... args) {
    steps_.push_back(std::make_unique<Step>(std::forward<Args>(args)...));
  }
  void split(std::uint16_t traits, Delimiter delimiter) { add<Split>(std::make_unique<TraitPattern>(traits), delimiter); }

  void sequence(const Json& json) {
    for (const Json& step : json.at("pretokenizers").as_array()) read(step);
  }
  void byte_level(const Json& json) {
    if (flag(json, "add_prefix_space", true)) add<PrefixSpace>();
    if (flag(json, "use_regex", true)) add<Split>(gpt2_pattern(), Delimiter::isolated);
    add<ByteAlphabet>();
  }
  void by_pattern(const Json& json) {
    add<Split>(read_pattern(json.at("pattern")), delimiter_of(json.at("behavior")), flag(json, "invert", false));
  }
  void bert(const Json&) {
    split(trait::kSpace, Delimiter::removed);
    split(trait::kPunctuation, Delimiter::isolated);
  }
  void digits(const Json& json) {
    split(trait::kNumeric, flag(json, "individual_digits", false) ? Delimiter::isolated : Delimiter::contiguous);
  }
  void punctuation(const Json& json) {
    const Json* behavior = json.find("behavior");
    split(trait::kPunctuation, behavior != nullptr ? delimiter_of(*behavior) : Delimiter::isolated);
  }
  void whitespace(const Json&) { add<Split>(std::make_unique<WordPattern>(), Delimiter::removed, true); }
  void whitespace_split(const Json&) { split(trait::kSpace, Delimiter::removed); }
  void character(const Json& json) { add<Split>(literal_pattern(json.at("delimiter").as_string()), Delimiter::removed); }
  void fixed_length(const Json& json) {
    const std::int64_t length = json.at("length").as_integer();
    if (length < 1) json.at("length").fail_expected("a number of characters, at least 1");
    add<Split>(std::make_unique<LengthPattern>(length), Delimiter::isolated);
  }
  void metaspace(const Json& json) {
    const Json* replacement = json.find("replacement");
    const std::string mark = replacement != nullptr ? replacement->as_string() : std::string(kSpaceMark);
    if (mark.empty() || length_of(mark[0]) != mark.size()) replacement->fail_expected("one character");
    PrependMark prepend = flag(json, "add_prefix_space", true) ? PrependMark::always : PrependMark::never;
    if (const Json* scheme = json.find("prepend_scheme")) {
      const std::string& name = scheme->as_string();
      if (name != "always" && name != "first" && name != "never") scheme->fail_expected("\"always\", \"first\" or \"never\"");
      prepend = name == "always" ? PrependMark::always : name == "first" ? PrependMark::first : PrependMark::never;
    }
    const bool split = flag(json, "split", true);
    add<Metaspace>(mark, prepend, split);
    if (split) add<Split>(literal_pattern(mark), Delimiter::merged_with_next);
  }

  static constexpr std::array<Kind, 11> kKinds{{{"Sequence", &Reader::sequence},
                                                {"ByteLevel", &Reader::byte_level},
                                                {"Split", &Reader::by_pattern},
                                                {"BertPreTokenizer", &Reader::bert},
                                                {"Digits", &Reader::digits},
                                                {"Punctuation", &Reader::punctuation},
                                                {"Whitespace", &Reader::whitespace},
                                                {"WhitespaceSplit", &Reader::whitespace_split},
                                                {"CharDelimiterSplit", &Reader::character},
                                                {"FixedLength", &Reader::fixed_length},
                                                {"Metaspace", &Reader::metaspace}}};

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace

PreTokenizers read_pre_tokenizers(const Json& json, bool model_takes_bytes) {
  Reader reader;
  reader.read(json);
  return reader.finish(model_takes_bytes);
}

}  // namespace plimsoll::formats::tokenizer
