// A text on its way through pre-tokenizers: the text as it is now, and the pieces into which it has been cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/pattern.h"

namespace plimsoll::formats::tokenizer {

struct Pieces {
  std::string_view text;       // the caller's, or `own`
  std::vector<Range> ranges;   // ascending; text outside of them is dropped
  bool begins_input = false;   // the first piece is where the whole input begins
  std::string own = {};        // text that a pre-tokenizer has written anew
  std::vector<Range> matches;  // scratch
  std::vector<Range> next;     // scratch

  std::string_view at(const Range& range) const { return text.substr(range.begin, range.end - range.begin); }
};

}  // namespace plimsoll::formats::tokenizer
