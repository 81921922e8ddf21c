#include "formats/byte_tokenizer.h"

#include "formats/mapped_tokens.h"

namespace plimsoll::formats {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char letter : text) ids.push_back(static_cast<std::uint8_t>(letter));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < kVocab) {
      text.push_back(static_cast<char>(id));
    } else {
      text += "\xEF\xBF\xBD";
    }
  }
  return text;
}

std::unique_ptr<TokenSource> open_byte_text(io::FileSystem& file_system, const io::Path& path) {
  io::Mapping mapping = file_system.map(path);
  const auto size = static_cast<std::int64_t>(mapping.bytes().size());
  if (size == 0) base::bad_input("'{}' is empty; expected text to train on", path.string());
  return std::make_unique<MappedTokens>(std::move(mapping),
                                        TokenLayout{.file = path.string(), .width = IdWidth::u8, .tokens = size, .runs = {{0, 0}}});
}

}  // namespace plimsoll::formats
