// Generated text on its way to a reader, piece by piece: a character is handed on when all of its bytes are there, so
// that a terminal never sees half of one.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::formats::tokenizer {

class TextStream {
 public:
  // The text that can be shown now; the bytes of an unfinished character at the end are kept back.
  std::string push(std::string_view bytes);
  // What was kept back, as it is.
  std::string finish();

 private:
  std::string kept_;
};

}  // namespace plimsoll::formats::tokenizer
