// Oniguruma's Ruby syntax in PCRE2's words.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/tokenizer/character_set.h"
#include "formats/tokenizer/regex.h"
#include "formats/tokenizer/regex_sets.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::size_t kLongestExpression = 1 << 16;
// Of one expression: each takes milliseconds to work out.
constexpr std::size_t kMostSets = 16;
constexpr int kMostNested = 16;

class Rewriter {
 public:
  Rewriter(const std::string& expression, const std::string& where) : text_(expression), where_(where) {}

  std::string rewrite() {
    if (text_.size() > kLongestExpression) refuse("has more than 65536 bytes");
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        plain_character(c);
      }
    }
    if (in_class_) refuse("ends within a character class");
    return std::move(out_);
  }

 private:
  struct Options {
    bool ignore_case = false;
    bool extended = false;  // white space and comments between the parts
  };
  struct Group {
    std::size_t begin;  // in out_
    Options outside;
  };

  [[noreturn]] void refuse(std::string_view what) const {
    base::bad_input("{}: the pattern {} {}; Plimsoll cannot run it", where_, text_.size() > 200 ? text_.substr(0, 200) + "..." : text_,
                    what);
  }

  bool next_is(std::string_view word) const { return std::string_view(text_).substr(at_).starts_with(word); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void plain_character(char c) {
    if (options_.extended && skip_extended()) return;
    switch (c) {
      case '[': return open_class();
      case '(': return open_group();
      case ')': return close_group();
      case '{': return interval();
      case '|': branch_begins_ = out_.size() + 1; break;
      case '*':
      case '+':
      case '?':
      case '^':
      case '$': break;
      default: part_ = out_.size();
    }
    const std::size_t length = length_of(c);
    out_.append(text_, at_, length);
    at_ += length;
  }

  // Of (?x): true where something was passed over.
  bool skip_extended() {
    if (text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return true;
    }
    if (!CharacterTable::get().is(decode_at(text_.data() + at_).code, trait::kSpace)) return false;
    at_ += length_of(text_[at_]);
    const bool digits = !out_.empty() && out_.back() >= '0' && out_.back() <= '9' && peek() >= '0' && peek() <= '9';
    if (digits) out_ += "(?:)";  // or \1 2 would become \12
    return true;
  }

  void open_group() {
    if (next_is("(?#")) {
      const std::size_t end = text_.find(')', at_);
      if (end == std::string::npos) refuse("has a comment without end");
      at_ = end + 1;
      return;
    }
    const std::size_t flags_end = next_is("(?") ? text_.find_first_not_of("imx-", at_ + 2) : std::string::npos;
    const char kind = next_is("(?") && flags_end != std::string::npos ? text_[flags_end] : '\0';
    const bool flags = flags_end != std::string::npos && flags_end > at_ + 2;
    if (next_is("(?") && (flags ? kind != ':' && kind != ')' : std::string_view(":=!<>'P(|").find(kind) == std::string_view::npos)) {
      refuse("uses a group option other than i, m and x");
    }
    if (flags && kind == ')') return set_options(flags_end);
    groups_.push_back({out_.size(), options_});
    if (flags) {
      out_ += translated_options(flags_end) + ":";
      at_ = flags_end + 1;
    } else {
      const std::size_t end = introduction_end();
      out_.append(text_, at_, end - at_);
      at_ = end;
    }
    branch_begins_ = out_.size();
  }

  // Where what a group holds begins: behind "(", "(?:", "(?<=" or "(?<name>".
  std::size_t introduction_end() const {
    if (!next_is("(?")) return at_ + 1;
    if (next_is("(?<=") || next_is("(?<!")) return at_ + 4;
    if (!next_is("(?<") && !next_is("(?'")) return std::min(at_ + 3, text_.size());
    const std::size_t end = text_.find(next_is("(?<") ? '>' : '\'', at_ + 3);
    return end == std::string::npos ? text_.size() : end + 1;
  }

  // (?i) in the middle of a branch would take the branches that follow along, which is not so in PCRE2.
  void set_options(std::size_t flags_end) {
    if (out_.size() != branch_begins_) refuse("sets an option in the middle of a branch");
    const std::string options = translated_options(flags_end);
    if (options != "(?") out_ += options + ")";
    at_ = flags_end + 1;
    branch_begins_ = out_.size();
  }

  // "(?i-s": what Ruby calls m is s elsewhere; x is seen to here.
  std::string translated_options(std::size_t end) {
    std::string out = "(?";
    bool on = true;
    for (std::size_t i = at_ + 2; i < end; ++i) {
      const char flag = text_[i];
      if (flag == '-') {
        if (!on) refuse("uses a group option other than i, m and x");
        on = false;
      }
      if (flag == 'x') options_.extended = on;
      if (flag == 'i') options_.ignore_case = on;
      if (flag != 'x') out += flag == 'm' ? 's' : flag;
    }
    if (out.ends_with('-')) out.pop_back();
    return out;
  }

  void close_group() {
    if (!groups_.empty()) {
      part_ = groups_.back().begin;
      options_ = groups_.back().outside;
      groups_.pop_back();
    }
    out_ += text_[at_++];
  }

  // {n}, {n,}, {,m} and {n,m}. Behind one a + repeats it, and behind {n} a ? makes it optional; elsewhere both say how to search.
  void interval() {
    const std::size_t close = text_.find_first_not_of("0123456789,", at_ + 1);
    const std::string inner = close == std::string::npos ? "" : text_.substr(at_ + 1, close - at_ - 1);
    const std::size_t comma = inner.find(',');
    if (close == std::string::npos || text_[close] != '}' || inner.empty() || inner == "," || comma != inner.rfind(',')) {
      part_ = out_.size();
      out_ += text_[at_++];
      return;
    }
    at_ = close + 1;
    const std::string repeats = fmt::format("{{{}{}}}", comma == 0 ? "0" : "", inner);
    const bool again = peek() == '+';
    const bool optional = peek() == '?' && comma == std::string::npos;
    if (!again && !optional) {
      out_ += repeats;
      return;
    }
    if (again && peek(1) == '+') refuse("repeats an interval with ++");
    out_.insert(part_, "(?:");
    out_ += repeats + ")" + text_[at_++];
  }

  void open_class() {
    part_ = out_.size();
    if (needs_sets()) {
      if (options_.ignore_case) refuse("has a class within a class where case does not matter");
      out_ += read_class(0).written();
      return;
    }
    in_class_ = true;
    out_ += text_[at_++];
    if (next_is("^")) out_ += text_[at_++];
    if (next_is("]")) refuse("has an empty class");
  }

  void class_character(char c) {
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
  }

  // Whether the class at at_ is one that PCRE2 cannot write.
  bool needs_sets() const {
    std::size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != ']'; ++i) {
      if (text_[i] == '[' || text_.compare(i, 2, "&&") == 0) return true;
      if (text_[i] != '\\') continue;
      ++i;
      if (i < text_.size() && std::string_view("DWHP").find(text_[i]) != std::string_view::npos) return true;
      if (text_.compare(i, 3, "p{^") == 0) return true;
    }
    return false;
  }

  const CharacterSet& set_of(const std::string& inner) {
    const auto known = sets_.find(inner);
    if (known != sets_.end()) return known->second;
    if (sets_.size() >= kMostSets) refuse(fmt::format("has classes within classes of more than {} kinds", kMostSets));
    if (!compiles("[" + inner + "]")) refuse("uses a property that is not known");
    return sets_.emplace(inner, characters_of(inner)).first->second;
  }

  // The class whose bracket is at at_.
  CharacterSet read_class(int depth) {
    if (depth >= kMostNested) refuse(fmt::format("has classes within classes {} deep", kMostNested));
    ++at_;
    const bool negated = next_is("^");
    if (negated) ++at_;
    if (next_is("]")) refuse("has an empty class");
    CharacterSet side;
    std::optional<CharacterSet> others;  // what stands before the last &&
    const auto fold = [&] { return others ? others->common(side) : side; };
    while (!next_is("]")) {
      if (at_ >= text_.size()) refuse("ends within a character class");
      if (next_is("&&")) {
        at_ += 2;
        others = fold();
        side = {};
      } else {
        read_member(side, depth);
      }
    }
    ++at_;
    return negated ? fold().complement() : fold();
  }

  void read_member(CharacterSet& set, int depth) {
    if (next_is("[:")) {
      const std::size_t end = text_.find(":]", at_ + 2);
      const bool is_name = end != std::string::npos && text_.find_first_not_of("^abcdefghijklmnopqrstuvwxyz", at_ + 2) == end;
      if (is_name) return read_posix(set, end);
    }
    if (next_is("[")) return set.add(read_class(depth + 1));
    std::uint32_t first = 0;
    if (!read_code(first)) return read_shorthand(set);
    std::uint32_t last = first;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++at_;
      if (peek() == '[' || !read_code(last)) refuse("has a range that ends with a class");
      if (last < first) refuse("has a range that runs backwards");
    }
    set.add(first, last);
  }

  void read_posix(CharacterSet& set, std::size_t end) {
    const bool negated = text_[at_ + 2] == '^';
    const std::string name = text_.substr(at_ + (negated ? 3 : 2), end - at_ - (negated ? 3 : 2));
    at_ = end + 2;
    CharacterSet found;
    if (name == "graph" || name == "print") {
      found = set_of(std::string(kSpaces) + R"(\p{Cc}\p{Cn}\p{Cs})").complement();
      for (const CategoryRange& range : newer_ranges("")) found.add(range.first, range.last);
      if (name == "print") found.add(set_of(R"(\p{Zs})"));
    } else {
      const std::optional<std::string> inner = posix_class(name);
      if (!inner) refuse(fmt::format("has a class [:{}:], which does not exist", name));
      found = set_of(*inner);
    }
    set.add(negated ? found.complement() : found);
  }

  // One character, plain or escaped; false, and nothing read, for the shorthand of a set.
  bool read_code(std::uint32_t& code) {
    if (peek() != '\\') {
      const Character character = decode_at(text_.data() + at_);
      code = character.code;
      at_ += character.length;
      return true;
    }
    constexpr std::string_view kNames = "abefnrtv";
    constexpr std::string_view kCodes = "\a\b\x1b\f\n\r\t\v";
    const char kind = peek(1);
    if (const std::size_t known = kNames.find(kind); known != std::string_view::npos) {
      code = static_cast<std::uint32_t>(kCodes[known]);
      at_ += 2;
      return true;
    }
    if (kind == 'x' || kind == 'u') {
      code = read_number();
      return true;
    }
    const bool letter = (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z') || (kind >= '0' && kind <= '9') || kind == '\0';
    if (letter) return false;
    ++at_;
    return read_code(code);
  }

  // \x41, \x{1F600} or \u3042.
  std::uint32_t read_number() {
    const bool braces = peek(1) == 'x' && peek(2) == '{';
    const std::size_t begin = at_ + (braces ? 3 : 2);
    std::size_t end = std::min(text_.find_first_not_of("0123456789abcdefABCDEF", begin), text_.size());
    if (!braces) end = std::min(end, begin + (peek(1) == 'u' ? 4 : 2));
    if (end == begin || end > begin + 6 || (peek(1) == 'u' && end < begin + 4) || (braces && (end == text_.size() || text_[end] != '}')))
      refuse("has a character's number that is not whole");
    const auto code = static_cast<std::uint32_t>(std::stoul(text_.substr(begin, end - begin), nullptr, 16));
    if (code > kLastCharacter || (!braces && peek(1) == 'x' && code >= 0x80)) refuse("has a number that is no character");
    at_ = end + (braces ? 1 : 0);
    return code;
  }

  void read_shorthand(CharacterSet& set) {
    if (at_ + 1 >= text_.size()) refuse("ends with a backslash");
    const char kind = text_[at_ + 1];
    at_ += 2;
    const auto put = [&](const std::string& inner, bool negated) { set.add(negated ? set_of(inner).complement() : set_of(inner)); };
    switch (kind) {
      case 's':
      case 'S': return put(std::string(kSpaces), kind == 'S');
      case 'd':
      case 'D': return put(category("Nd"), kind == 'D');
      case 'w':
      case 'W': return put(word(true), kind == 'W');
      case 'h':
      case 'H': return put(std::string(kHexadecimal), kind == 'H');
      case 'p':
      case 'P': {
        const auto [name, negated] = property_name(kind == 'P');
        return put(named_set(name), negated);
      }
      default: refuse(fmt::format("uses \\{} in a class within a class", kind));
    }
  }

  // A set given by what stands between its brackets.
  void put_set(std::string_view inner) { out_ += in_class_ ? std::string(inner) : fmt::format("[{}]", inner); }
  void put_complement(std::string_view inner) { out_ += fmt::format("[^{}]", inner); }

  void escape() {
    if (at_ + 1 >= text_.size()) refuse("ends with a backslash");
    if (!in_class_) part_ = out_.size();
    const char kind = text_[at_ + 1];
    at_ += 2;
    switch (kind) {
      case 's': return put_set(kSpaces);
      case 'S': return put_set(kNoSpaces);
      case 'd': return put_set(category("Nd"));
      case 'D': return put_complement(category("Nd"));
      case 'w': return put_set(word(in_class_));
      case 'W': return put_complement(word(in_class_));
      case 'h': return put_set(kHexadecimal);
      case 'H': return put_complement(kHexadecimal);
      case 'v': return static_cast<void>(out_ += R"(\x{b})");  // one character, not all that end lines
      case 'u': return code_point();
      case 'p':
      case 'P': return named(kind == 'P');
      case 'b':
      case 'B':
        if (in_class_) break;
        return edge(kind == 'b');
      case 'R':
      case 'X':
      case 'K':
      case 'G':
      case 'g':
      case 'k':
      case 'C':
      case 'Q':
      case 'N': refuse(fmt::format("uses \\{}", kind));
      default: break;
    }
    out_ += '\\';
    at_ -= 1;
    const std::size_t length = length_of(kind);
    out_.append(text_, at_, length);
    at_ += length;
  }

  // Of a word, as \w sees it; or no edge.
  void edge(bool wanted) {
    const std::string inner = word(false);
    out_ += wanted ? fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", inner)
                   : fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", inner);
  }

  void code_point() {
    constexpr std::size_t kDigits = 4;
    const std::string digits = text_.substr(at_, kDigits);
    if (digits.size() < kDigits || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("has a \\u without four digits");
    at_ += kDigits;
    out_ += fmt::format(R"(\x{{{}}})", digits);
  }

  // What follows \p or \P, and whether it means the others.
  std::pair<std::string, bool> property_name(bool negated) {
    if (!next_is("{")) refuse("has a property without braces");
    const std::size_t close = text_.find('}', at_);
    if (close == std::string::npos) refuse("has a property without end");
    std::string name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    return {std::move(name), negated};
  }

  void named(bool negated_before) {
    const auto [name, negated] = property_name(negated_before);
    if (negated) {
      put_complement(named_set(name));
    } else {
      put_set(named_set(name));
    }
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  Options options_;
  std::vector<Group> groups_;
  std::size_t part_ = 0;           // in out_: where what a quantifier repeats begins
  std::size_t branch_begins_ = 0;  // in out_
  std::map<std::string, CharacterSet> sets_;
  std::string out_;
};

}  // namespace

std::string rewrite_for_pcre(const std::string& expression, const std::string& where) { return Rewriter(expression, where).rewrite(); }

}  // namespace plimsoll::formats::tokenizer
