// What a fuzz target does with a tokenizer that was accepted: every id lies in the vocabulary, and nothing but bad input is thrown.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "formats/tokenizer/tokenizer.h"

namespace plimsoll::tests {

inline void use_tokenizer(const std::shared_ptr<const formats::tokenizer::Tokenizer>& tokenizer, std::string_view input) {
  constexpr std::array<std::string_view, 4> kTexts{
      "", " a  b\n\tcaf\xC3\xA9 don't 123 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80<s>",
      "\xE2\x96\x81\xE2\x96\x81 ab\xCC\x81\xFF \xEF\xAC\x81 ABC",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  const auto check = [&](std::string_view text) {
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab()) std::abort();
    }
    tokenizer->decode(ids, true);
    formats::tokenizer::StreamDecoder stream(tokenizer);
    for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 20); ++i) stream.next(ids[i]);
    stream.finish();
  };
  for (const std::string_view text : kTexts) check(text);
  check(input.substr(0, 300));
}

}  // namespace plimsoll::tests
