// Regular expressions as tokenizer.json writes them (Oniguruma's Ruby syntax), run by PCRE2.
//
// The two agree on what pre-tokenizers use, except for the classes: \s, \w, \b and \d are written out, \h is a hexadecimal
// digit, and \p{L} gets the letters that came after this PCRE2's Unicode. Classes within classes, their intersections and [:alpha:] are
// worked out here and become plain ones; (?m) is (?s), (?x) is followed here, and a{2}+ repeats. What would mean something else in PCRE2
// and cannot be rewritten is refused by name.
#pragma once

#include <memory>
#include <string>

#include "formats/tokenizer/pattern.h"

namespace plimsoll::formats::tokenizer {

class Regex final : public Pattern {
 public:
  Regex(const std::string& expression, const std::string& where);
  ~Regex() override;

  void find(std::string_view text, std::vector<Range>& matches) const override;

 private:
  struct Program;

  std::unique_ptr<Program> program_;
  std::string where_;
};

// The expression in PCRE2's syntax; for tests.
std::string rewrite_for_pcre(const std::string& expression, const std::string& where);

}  // namespace plimsoll::formats::tokenizer
