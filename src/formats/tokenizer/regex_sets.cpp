#include "formats/tokenizer/regex_sets.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <vector>

#include <fmt/format.h>

#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

std::string written(const std::vector<CategoryRange>& ranges) {
  std::string set;
  for (const CategoryRange& range : ranges) set += fmt::format(R"(\x{{{:x}}}-\x{{{:x}}})", range.first, range.last);
  return set;
}

// Of a property that characters have beside their category.
std::string property(std::string_view name) { return fmt::format(R"(\p{{{}}})", name) + written(newer_of_property(name)); }

}  // namespace

bool compiles(const std::string& expression) {
  int error = 0;
  std::size_t offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

std::string category(std::string_view name) { return fmt::format(R"(\p{{{}}})", name) + written(newer_ranges(name)); }

std::string word(bool in_class) {
  return category("L") + category("M") + category("Nd") + category("Nl") + category("Pc") +
         R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})" +
         (in_class ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})");
}

std::optional<std::string> posix_class(std::string_view name) {
  if (name == "alnum") return property("alphabetic") + category("Nd");
  if (name == "alpha") return property("alphabetic");
  if (name == "ascii") return R"(\x{0}-\x{7f})";
  if (name == "blank") return R"(\p{Zs}\x{9})";
  if (name == "cntrl") return R"(\p{Cc})";
  if (name == "digit") return category("Nd");
  if (name == "lower") return property("lowercase");
  if (name == "punct") return category("P") + category("S");
  if (name == "space") return std::string(kSpaces);
  if (name == "upper") return property("uppercase");
  if (name == "word") return word(true);
  if (name == "xdigit") return std::string(kHexadecimal);
  return std::nullopt;
}

std::string named_set(const std::string& name) {
  if (name.size() <= 2) return category(name);
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != ' ') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  if (plain == "punct") return category("P");  // [:punct:] has the symbols too
  if (const auto posix = posix_class(plain); posix && plain != "word") return *posix;
  // A script's characters are those that belong to it alone; PCRE2 would add those that it shares with others.
  const std::string script = fmt::format(R"(\p{{sc:{}}})", name);
  return (compiles(script) ? script : fmt::format(R"(\p{{{}}})", name)) + written(newer_of_property(plain));
}

}  // namespace plimsoll::formats::tokenizer
