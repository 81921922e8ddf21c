// The sets of characters that Oniguruma has names for, as PCRE2 writes them between the brackets of a set.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::formats::tokenizer {

inline constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
inline constexpr std::string_view kHexadecimal = "0-9a-fA-F";

// Whether PCRE2 takes the expression.
bool compiles(const std::string& expression);

// A general category.
std::string category(std::string_view name);

// Besides letters, marks, digits and connectors: numbers that are letters, circled letters, and, unless in brackets, the fractions of
// Latin-1.
std::string word(bool in_class);

// The sets of [:name:]; nothing for a name that does not exist, or that is told by what it is not (graph and print).
std::optional<std::string> posix_class(std::string_view name);

// The set of \p{name}.
std::string named_set(const std::string& name);

}  // namespace plimsoll::formats::tokenizer
