// The parser of json.h: recursive descent over the text, one function per production, depth bounded by the options.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll::base {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Length of the well-formed UTF-8 sequence at the start of `text`, or 0. Overlong forms, surrogates and values above
// U+10FFFF are not well-formed (Unicode, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80u) return 1;
  if (first >= 0xC2u && first <= 0xDFu) return follows(1) ? 2 : 0;
  if (first >= 0xE0u && first <= 0xEFu) {
    const unsigned low = first == 0xE0u ? 0xA0u : 0x80u;
    const unsigned high = first == 0xEDu ? 0x9Fu : 0xBFu;
    return byte(1) >= low && byte(1) <= high && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0u && first <= 0xF4u) {
    const unsigned low = first == 0xF0u ? 0x90u : 0x80u;
    const unsigned high = first == 0xF4u ? 0x8Fu : 0xBFu;
    return byte(1) >= low && byte(1) <= high && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// Whether it is a whole number of JSON.
bool is_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - first;
  };
  const bool leading_zero = at < text.size() && text[at] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (at < text.size() && text[at] == '.' && (++at, digits() == 0)) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

std::string_view without_spaces_behind(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80u) {
    put(code);
  } else if (code < 0x800u) {
    put(0xC0u | (code >> 6));
    put(0x80u | (code & 0x3Fu));
  } else if (code < 0x10000u) {
    put(0xE0u | (code >> 12));
    put(0x80u | ((code >> 6) & 0x3Fu));
    put(0x80u | (code & 0x3Fu));
  } else {
    put(0xF0u | (code >> 18));
    put(0x80u | ((code >> 12) & 0x3Fu));
    put(0x80u | ((code >> 6) & 0x3Fu));
    put(0x80u | (code & 0x3Fu));
  }
}

}  // namespace

class JsonParser {
 public:
  JsonParser(std::shared_ptr<const Json::Source> source, const JsonOptions& options)
      : source_(std::move(source)), text_(source_->text), options_(options) {}

  Json document() {
    if (!options_.strict && text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    skip_space();
    const bool bare = options_.hjson && at_ < text_.size() && peek() != '{' && peek() != '[';
    Json value = bare ? parse_bare_members() : parse_value(0);
    skip_space();
    if (at_ < text_.size()) fail("the end of the text");
    return value;
  }

 private:
  [[noreturn]] void fail_at(std::size_t offset, std::string_view found, std::string_view expected) const {
    Json here;
    here.source_ = source_;
    here.offset_ = static_cast<std::uint32_t>(offset);
    bad_input("{}: found {}, expected {}", here.where(), found, expected);
  }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(at_, found_here(), expected); }

  std::string found_here() const {
    constexpr std::size_t kLongestWord = 24;
    if (at_ >= text_.size()) return "the end of the text";
    const std::string_view rest = text_.substr(at_);
    std::size_t length = 0;
    while (length < rest.size() && length < kLongestWord && is_word(rest[length])) ++length;
    if (length == 0) length = utf8_length(rest);
    const auto byte = static_cast<unsigned char>(rest[0]);
    if (length == 0) return fmt::format("the byte 0x{:02X}, which is not valid UTF-8", byte);
    if (byte < 0x20u || byte == 0x7Fu) return fmt::format("the control character U+{:04X}", byte);
    if (rest[0] == '\'') return "a single quote";
    return fmt::format("'{}'", rest.substr(0, length));
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void skip_space() {
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
      if (options_.strict || !skip_comment()) return;
    }
  }

  bool skip_comment() {
    const bool line = peek() == '#' || (peek() == '/' && peek(1) == '/');
    const bool block = peek() == '/' && peek(1) == '*';
    if (!line && !block) return false;
    const std::size_t end = line ? text_.find('\n', at_) : text_.find("*/", at_ + 2);
    if (block && end == std::string_view::npos) fail_at(at_, "a comment without an end", "\"*/\" after it");
    const std::size_t stop = end == std::string_view::npos ? text_.size() : end + (line ? 1 : 2);
    while (at_ < stop) {
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) fail("UTF-8 text");
      at_ += length;
    }
    return true;
  }

  template <typename T>
  Json value_at(std::size_t offset, T content) const {
    Json value(std::move(content));
    value.offset_ = static_cast<std::uint32_t>(offset);
    value.source_ = source_;
    return value;
  }

  Json parse_value(int depth) {
    const std::size_t start = at_;
    switch (peek()) {
      case '{': return parse_object(depth);
      case '[': return parse_array(depth);
      case '"': return value_at(start, parse_string());
      default: break;
    }
    if (options_.hjson) return peek() == '\'' ? value_at(start, parse_string()) : parse_bare_value();
    switch (peek()) {
      case 't': return expect_word("true"), value_at(start, true);
      case 'f': return expect_word("false"), value_at(start, false);
      case 'n': return expect_word("null"), value_at(start, nullptr);
      default: break;
    }
    if (peek() == '-' || is_digit(peek())) return parse_number();
    fail(options_.strict || peek() != '\'' ? "a value" : "a value (strings stand in double quotes)");
  }

  void expect_word(std::string_view word) {
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word) || (rest.size() > word.size() && is_word(rest[word.size()]))) fail("a value");
    at_ += word.size();
  }

  void check_depth(int depth) const {
    if (depth >= options_.max_depth) {
      fail_at(at_, fmt::format("more than {} arrays and objects inside each other", options_.max_depth), "fewer");
    }
  }

  // After an item: true when another follows, false at the closing bracket, which is consumed.
  bool another_item(char close) {
    skip_space();
    if (peek() == close) {
      ++at_;
      return false;
    }
    if (peek() != ',' && (!options_.hjson || at_ >= text_.size())) fail(close == '}' ? "',' or '}'" : "',' or ']'");
    if (peek() == ',') ++at_;
    skip_space();
    if (peek() != close) return true;
    if (options_.strict) fail(close == '}' ? "another key after the ','" : "another value after the ','");
    ++at_;
    return false;
  }

  Json parse_array(int depth) {
    check_depth(depth);
    const std::size_t start = at_++;
    Json::Array items;
    skip_space();
    bool more = peek() != ']';
    if (!more) ++at_;
    while (more) {
      items.push_back(parse_value(depth + 1));
      more = another_item(']');
    }
    return value_at(start, std::move(items));
  }

  Json parse_object(int depth) {
    check_depth(depth);
    const std::size_t start = at_++;
    JsonObject object;
    skip_space();
    bool more = peek() != '}';
    if (!more) ++at_;
    while (more) {
      parse_member(object, depth);
      more = another_item('}');
    }
    return value_at(start, std::move(object));
  }

  void parse_member(JsonObject& object, int depth) {
    const std::size_t key_offset = at_;
    if (peek() != '"' && !options_.hjson) fail("a key in double quotes");
    std::string key = peek() == '"' || peek() == '\'' ? parse_string() : parse_bare_key();
    if (const JsonMember* first = object.find(key)) {
      const Json earlier = value_at(first->key_offset, nullptr);
      fail_at(key_offset, fmt::format("the key {} a second time", quote_json(key)),
              fmt::format("each key once (first on line {})", earlier.position().line));
    }
    skip_space();
    if (peek() != ':') fail("':' after the key");
    ++at_;
    skip_space();
    Json value = parse_value(depth + 1);
    object.add(std::move(key), std::move(value), static_cast<std::uint32_t>(key_offset));
  }

  // ---- HJSON

  Json parse_bare_members() {
    const std::size_t start = at_;
    JsonObject object;
    while (at_ < text_.size()) {
      parse_member(object, 0);
      skip_space();
      if (peek() == ',') ++at_;
      skip_space();
    }
    return value_at(start, std::move(object));
  }

  static bool is_punctuation(char c) { return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':'; }

  std::string parse_bare_key() {
    const std::size_t start = at_;
    while (at_ < text_.size() && !is_punctuation(peek()) && peek() != ' ' && peek() != '\t' && peek() != '\n' && peek() != '\r')
      skip_character();
    if (at_ == start) fail("a key");
    return std::string(text_.substr(start, at_ - start));
  }

  // A word or number of JSON up to a sign that may follow one, else a text up to the end of the line. Later signs end nothing, since no
  // word or number holds one: so each character is looked at a few times at most.
  Json parse_bare_value() {
    const std::size_t start = at_;
    if (at_ >= text_.size() || is_punctuation(peek())) fail("a value");
    const auto ends_line = [&] { return at_ >= text_.size() || peek() == '\n' || peek() == '\r'; };
    const auto ends_word = [&] {
      const bool comment = peek() == '#' || (peek() == '/' && (peek(1) == '/' || peek(1) == '*'));
      return ends_line() || comment || peek() == ',' || peek() == '}' || peek() == ']';
    };
    while (!ends_word()) skip_character();
    const std::string_view word = without_spaces_behind(text_.substr(start, at_ - start));
    if (word == "true" || word == "false") return value_at(start, word == "true");
    if (word == "null") return value_at(start, nullptr);
    if (is_number(word)) {
      at_ = start;
      return parse_number();
    }
    while (!ends_line()) skip_character();
    return value_at(start, std::string(without_spaces_behind(text_.substr(start, at_ - start))));
  }

  // Of a text without quotes.
  void skip_character() {
    const std::size_t length = utf8_length(text_.substr(at_));
    const auto byte = static_cast<unsigned char>(peek());
    if (length == 0) fail("UTF-8 text");
    if ((byte < 0x20u && byte != '\t') || byte == 0x7Fu) fail("a text in double quotes, with an escape in its place");
    at_ += length;
  }

  // ---- strings and numbers

  std::string parse_string() {
    const char quote = peek();
    if (quote == '\'' && text_.substr(at_).starts_with("'''")) fail_at(at_, "a string of several lines", "one line in double quotes");
    const std::size_t start = at_++;
    std::string out;
    for (;;) {
      const std::size_t run = at_;
      while (at_ < text_.size() && is_plain(text_[at_]) && text_[at_] != quote) ++at_;
      out.append(text_.substr(run, at_ - run));
      if (at_ >= text_.size() || peek() == '\n') {
        fail_at(start, "a string without an end", fmt::format("'{}' before the end of the line", quote));
      }
      if (peek() == quote) break;
      if (peek() == '\\') {
        parse_escape(out);
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) fail("UTF-8 text");
      if (length == 1) fail("an escape such as \\t in its place");
      out.append(text_.substr(at_, length));
      at_ += length;
    }
    ++at_;
    return out;
  }

  static bool is_plain(char c) { return c >= 0x20 && c != '\\'; }  // chars above 0x7F are negative

  void parse_escape(std::string& out) {
    const std::size_t start = at_;
    ++at_;
    const char kind = peek();
    ++at_;
    switch (kind) {
      case '"': out += '"'; return;
      case '\'':
        if (!options_.hjson) break;
        out += '\'';
        return;
      case '\\': out += '\\'; return;
      case '/': out += '/'; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': append_utf8(out, parse_code_point(start)); return;
      default: break;
    }
    at_ = start + 1;
    fail_at(start, fmt::format("a '\\' before {}", found_here()), "one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  }

  std::uint32_t parse_code_point(std::size_t start) {
    const std::uint32_t first = parse_hex4();
    if (first < 0xD800u || first > 0xDFFFu) return first;
    if (first < 0xDC00u && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      const std::uint32_t second = parse_hex4();
      if (second >= 0xDC00u && second <= 0xDFFFu) return 0x10000u + ((first - 0xD800u) << 10) + (second - 0xDC00u);
    }
    fail_at(start, "half of a surrogate pair", "both halves, such as \\uD83D\\uDE00");
  }

  std::uint32_t parse_hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) fail("four hexadecimal digits after \\u");
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    return code;
  }

  void expect_digits(std::string_view expected) {
    if (!is_digit(peek())) fail(expected);
    while (is_digit(peek())) ++at_;
  }

  Json parse_number() {
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0' && is_digit(peek(1))) fail("a number without leading zeros");
    expect_digits("a digit after '-'");
    const std::size_t integer_end = at_;
    if (peek() == '.') {
      ++at_;
      expect_digits("a digit after '.'");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      expect_digits("a digit of the exponent");
    }
    if (is_word(peek()) || peek() == '.') fail("the end of the number");
    return number_value(start, at_ == integer_end);
  }

  Json number_value(std::size_t start, bool plain_integer) const {
    const std::string_view token = text_.substr(start, at_ - start);
    const char* const end = token.data() + token.size();
    std::int64_t integer = 0;
    if (plain_integer && token != "-0" && std::from_chars(token.data(), end, integer).ec == std::errc{}) return value_at(start, integer);
    double number = 0.0;
    if (std::from_chars(token.data(), end, number).ec != std::errc{}) {
      fail_at(start, fmt::format("the number {}", token.substr(0, 40)), "one that a 64-bit float can hold");
    }
    return value_at(start, number);
  }

  std::shared_ptr<const Json::Source> source_;
  std::string_view text_;
  JsonOptions options_;
  std::size_t at_ = 0;
};

Json parse_json(std::string_view text, std::string_view name, const JsonOptions& options) {
  const std::size_t limit = std::min<std::size_t>(options.max_bytes, std::numeric_limits<std::uint32_t>::max());
  if (text.size() > limit) bad_input("{}: found {} bytes of JSON, expected at most {}", name, text.size(), limit);
  auto source = std::make_shared<Json::Source>(Json::Source{std::string(name), std::string(text), options.one_line, options.hjson});
  return JsonParser(std::move(source), options).document();
}

}  // namespace plimsoll::base
