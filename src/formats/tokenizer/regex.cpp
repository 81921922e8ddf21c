#include "formats/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "formats/tokenizer/pool.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::string_view kSpaces = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr const char* kNewerHan = R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";  // than this PCRE2's Unicode
constexpr std::size_t kLongestExpression = 1 << 16;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

template <typename T>
using Owned = std::unique_ptr<T, Free>;

bool compiles(const std::string& expression) {
  int error = 0;
  std::size_t offset = 0;
  return Owned<pcre2_code>(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF, &error, &offset,
                                         nullptr)) != nullptr;
}

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
  [[noreturn]] void refuse(std::string_view what) const {
    base::bad_input("{}: the pattern {} {}; Plimsoll cannot run it", where_, text_.size() > 200 ? text_.substr(0, 200) + "..." : text_,
                    what);
  }

  bool next_is(std::string_view word) const { return std::string_view(text_).substr(at_).starts_with(word); }

  void plain_character(char c) {
    if (c == '[') {
      in_class_ = true;
      out_ += c;
      ++at_;
      if (next_is("^")) out_ += text_[at_++];
      if (next_is("]")) refuse("has an empty class");
      return;
    }
    if (c == '(' && next_is("(?")) {
      const std::size_t end = text_.find_first_of(":)=!<>'#P", at_ + 2);
      const std::string flags = text_.substr(at_ + 2, end == std::string::npos ? std::string::npos : end - at_ - 2);
      if (flags.find_first_of("mx~") != std::string::npos) refuse("uses a group option other than i");
    }
    if (c == '}' && at_ + 1 < text_.size() && text_[at_ + 1] == '+') refuse("repeats an interval with +");
    out_ += c;
    ++at_;
  }

  void class_character(char c) {
    if (c == '[') refuse("has a class within a class");
    if (c == '&' && next_is("&&")) refuse("has an intersection of classes");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
  }

  // A set given by what stands between its brackets.
  void put_set(std::string_view inner) { out_ += in_class_ ? std::string(inner) : fmt::format("[{}]", inner); }

  void put_complement(std::string_view inner) {
    if (in_class_) refuse("has a negated shorthand within a class");
    out_ += fmt::format("[^{}]", inner);
  }

  void escape() {
    if (at_ + 1 >= text_.size()) refuse("ends with a backslash");
    const char kind = text_[at_ + 1];
    at_ += 2;
    switch (kind) {
      case 's': return put_set(kSpaces);
      case 'S': return put_set(kNoSpaces);
      case 'd': return put_set(property("Nd"));
      case 'D': return put_complement(property("Nd"));
      case 'w': return put_set(word());
      case 'W': return put_complement(word());
      case 'h': return put_set("0-9a-fA-F");
      case 'H': return put_complement("0-9a-fA-F");
      case 'u': return code_point();
      case 'p':
      case 'P': return named(kind == 'P');
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
    out_ += kind;
  }

  void code_point() {
    constexpr std::size_t kDigits = 4;
    const std::string digits = text_.substr(at_, kDigits);
    if (digits.size() < kDigits || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("has a \\u without four digits");
    at_ += kDigits;
    out_ += fmt::format(R"(\x{{{}}})", digits);
  }

  void named(bool negated) {
    if (!next_is("{")) refuse("has a property without braces");
    const std::size_t close = text_.find('}', at_);
    if (close == std::string::npos) refuse("has a property without end");
    std::string name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    if (negated) {
      put_complement(property(name));
    } else {
      put_set(property(name));
    }
  }

  static std::string property(const std::string& name) {
    if (name.size() > 2) return script_or_other(name);
    std::string set = fmt::format(R"(\p{{{}}})", name);
    for (const CategoryRange& range : newer_ranges(name)) set += fmt::format(R"(\x{{{:x}}}-\x{{{:x}}})", range.first, range.last);
    return set;
  }

  // A script's characters are those that belong to it alone; PCRE2 would add those that it shares with others.
  static std::string script_or_other(const std::string& name) {
    const std::string script = fmt::format(R"(\p{{sc:{}}})", name);
    if (!compiles(script)) return fmt::format(R"(\p{{{}}})", name);
    return script + (name == "Han" ? kNewerHan : "");
  }

  // Besides letters, marks, digits and connectors: numbers that are letters, circled letters, and, unless in brackets, the fractions of
  // Latin-1.
  std::string word() const {
    return property("L") + property("M") + property("Nd") + property("Nl") + property("Pc") +
           R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})" +
           (in_class_ ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})");
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

// What one thread needs to match; costly enough to be kept.
struct Matcher {
  explicit Matcher(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_heap_limit(context.get(), 64 << 10);    // KiB
    pcre2_set_match_limit(context.get(), 1'000'000);  // no sensible pattern comes near it
  }

  Owned<pcre2_match_data> data;
  Owned<pcre2_match_context> context;
  Owned<pcre2_jit_stack> stack;
};

struct Regex::Program {
  explicit Program(Owned<pcre2_code> owned) : code(std::move(owned)) {}

  Owned<pcre2_code> code;
  Pool<Matcher> matchers = {};
};

Regex::Regex(const std::string& expression, const std::string& where) : where_(where) {
  const std::string rewritten = rewrite_for_pcre(expression, where);
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  // In Ruby's syntax ^ and $ are always those of lines.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) base::bad_input("{}: the pattern {} cannot be run: {}", where, expression.substr(0, 200), message_of(error));
  program_ = std::make_unique<Program>(Owned<pcre2_code>(code));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matching is slower and gives the same
}

Regex::~Regex() = default;

void Regex::find(std::string_view text, std::vector<Range>& matches) const {
  const pcre2_code* code = program_->code.get();
  const Pool<Matcher>::Lease lease = program_->matchers.take([code] { return std::make_unique<Matcher>(code); });
  const Matcher& matcher = *lease;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(matcher.data.get());
  std::size_t last_end = std::string_view::npos;
  for (std::size_t at = 0; at <= text.size();) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK, matcher.data.get(),
                                   matcher.context.get());
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      base::bad_input("{}: the pattern cannot be matched against a text of {} bytes: {}", where_, text.size(), message_of(result));
    if (found[1] < found[0]) base::bad_input("{}: the pattern sets the end of a match before its beginning", where_);
    // An empty match right behind another one does not count, and the search goes on behind the next character.
    if (found[1] == found[0] && found[1] == last_end) {
      at += at < text.size() ? length_of(text[at]) : 1;
      continue;
    }
    matches.push_back({found[0], found[1]});
    at = last_end = found[1];
  }
}

std::string rewrite_for_pcre(const std::string& expression, const std::string& where) { return Rewriter(expression, where).rewrite(); }

}  // namespace plimsoll::formats::tokenizer
