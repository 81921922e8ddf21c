// tokenizer.json files: what is accepted encodes and decodes whatever text without leaving its vocabulary.
#include "use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.find('{') == std::string_view::npos) return 0;  // that would be a SentencePiece model
  try {
    tests::use_tokenizer(formats::tokenizer::parse_tokenizer(input.substr(input.find('{')), "fuzz"), input);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input) std::abort();
  }
  return 0;
}
