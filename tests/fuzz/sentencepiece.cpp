// SentencePiece models: what is accepted encodes and decodes whatever text without leaving its vocabulary.
#include "formats/tokenizer/sentence_piece.h"

#include "use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    tests::use_tokenizer(formats::tokenizer::read_sentence_piece(input, "fuzz"), input);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input) std::abort();
  }
  return 0;
}
