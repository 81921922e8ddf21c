// The tokenizer that needs no files: a token is a byte, the vocabulary is 256.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/token_source.h"
#include "io/file_system.h"

namespace plimsoll::formats {

class ByteTokenizer {
 public:
  static constexpr std::int64_t kVocab = 256;

  std::int64_t vocab() const { return kVocab; }
  std::vector<std::int32_t> encode(std::string_view text) const;
  // Ids that are no bytes (a model may have a larger vocabulary) become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids) const;
};

// A text file seen as byte tokens, mapped; an empty one is bad input.
std::unique_ptr<TokenSource> open_byte_text(io::FileSystem& file_system, const io::Path& path);

}  // namespace plimsoll::formats
