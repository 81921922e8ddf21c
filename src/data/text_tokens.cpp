#include "data/text_tokens.h"

#include "base/error.h"
#include "data/part_encoder.h"
#include "data/text_documents.h"
#include "formats/byte_tokenizer.h"

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
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> starts;
  PartEncoder encoder(*tokenizer);
  bool begins = true;
  read_documents(file_system, path, options, [&](const TextPart& part, std::int64_t) {
    if (begins && json_lines && (starts.empty() || starts.back() != std::ssize(ids))) starts.push_back(std::ssize(ids));
    encoder.encode(part, ids);
    if (part.ends_document && end) ids.push_back(*end);
    begins = part.ends_document;
    if (std::ssize(ids) * 4 > most_bytes) {
      base::bad_input("the tokens of '{}' take more than {} bytes of memory; make shards of it first: plimsoll data {} --out shards/train",
                      path.string(), most_bytes, path.string());
    }
  });
  if (ids.empty()) base::bad_input("'{}' is empty; expected text to train on", path.string());
  if (!starts.empty() && starts.back() == std::ssize(ids)) starts.pop_back();
  return formats::tokens_in_memory(path.string(), std::move(ids), std::move(starts));
}

std::int64_t expected_token_bytes(io::FileSystem& file_system, const io::Path& path, const formats::tokenizer::Tokenizer& tokenizer) {
  if (is_bytes(tokenizer) && !is_json_lines(path)) return 0;
  constexpr std::size_t kSample = std::size_t{1} << 20;
  const io::File file(file_system, path, io::OpenMode::read);
  const std::int64_t size = file.size();
  std::string text(std::min<std::size_t>(kSample, static_cast<std::size_t>(size)), '\0');
  if (text.empty()) return 0;
  file.read_exactly(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  const auto tokens = static_cast<double>(tokenizer.encode(text).size());
  return static_cast<std::int64_t>(4.0 * tokens * static_cast<double>(size) / static_cast<double>(text.size()));
}

}  // namespace plimsoll::data
