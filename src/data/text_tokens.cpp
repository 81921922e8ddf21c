#include "data/text_tokens.h"

#include "base/error.h"
#include "data/part_encoder.h"
#include "data/text_documents.h"
#include "formats/byte_tokenizer.h"
#include "formats/packed_tokens.h"

namespace plimsoll::data {

namespace {

// Bytes need no encoding: the file itself is the row of tokens.
bool is_bytes(const formats::tokenizer::Tokenizer& tokenizer) {
  return tokenizer.vocab() == formats::ByteTokenizer::kVocab && tokenizer.encode("\xFF") == std::vector<std::int32_t>{255};
}

}  // namespace

std::unique_ptr<formats::TokenSource> open_text(io::FileSystem& file_system, const io::Path& path,
                                                const std::shared_ptr<const formats::tokenizer::Tokenizer>& tokenizer,
                                                std::int64_t most_bytes) {
  const bool json_lines = is_json_lines(path);
  if (is_bytes(*tokenizer) && !json_lines) return formats::open_byte_text(file_system, path);
  const TextOptions options{.cut_at_spaces = tokenizer->cuts_at_spaces()};
  const auto end = json_lines ? tokenizer->end_of_text() : std::nullopt;
  auto tokens = std::make_unique<formats::PackedTokens>(path.string(), formats::narrowest_width(tokenizer->vocab()));
  std::vector<std::int32_t> ids;  // of a part
  PartEncoder encoder(*tokenizer);
  bool begins = true;
  read_documents(file_system, path, options, [&](const TextPart& part, std::int64_t) {
    if (begins && json_lines) tokens->begin_document();
    ids.clear();
    encoder.encode(part, ids);
    if (part.ends_document && end) ids.push_back(*end);
    tokens->append(ids);
    begins = part.ends_document;
    if (tokens->bytes() > most_bytes) {
      base::bad_input("the tokens of '{}' take more than {} bytes of memory; make shards of it first: plimsoll data {} --out shards/train",
                      path.string(), most_bytes, path.string());
    }
  });
  if (tokens->size() == 0) base::bad_input("'{}' is empty; expected text to train on", path.string());
  tokens->drop_empty_document();
  return tokens;
}

std::int64_t expected_token_bytes(io::FileSystem& file_system, const io::Path& path, const formats::tokenizer::Tokenizer& tokenizer) {
  if (is_bytes(tokenizer) && !is_json_lines(path)) return 0;
  // Pieces from all over the file: its beginning need not be like the rest.
  constexpr std::int64_t kSamples = 8;
  constexpr std::int64_t kSample = std::int64_t{1} << 17;
  const io::File file(file_system, path, io::OpenMode::read);
  const std::int64_t size = file.size();
  if (size == 0) return 0;
  std::int64_t read = 0;
  std::size_t tokens = 0;
  std::string text;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const std::int64_t begin = size / kSamples * sample;
    text.resize(static_cast<std::size_t>(std::min(kSample, size - begin)));
    file.read_exactly(begin, std::as_writable_bytes(std::span(text.data(), text.size())));
    read += std::ssize(text);
    tokens += tokenizer.encode(text).size();
  }
  const std::int64_t width = formats::size_of(formats::narrowest_width(tokenizer.vocab()));
  return static_cast<std::int64_t>(static_cast<double>(width) * static_cast<double>(tokens) * static_cast<double>(size) /
                                   static_cast<double>(read));
}

}  // namespace plimsoll::data
