#include "formats/tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/json.h"
#include "formats/byte_tokenizer.h"
#include "formats/tokenizer/bytes_json.h"
#include "formats/tokenizer/json_tokenizer.h"
#include "formats/tokenizer/sentence_piece.h"
#include "formats/tokenizer/special_tokens.h"
#include "formats/tokenizer/utf8.h"
#include "formats/tokenizer/wrong_file.h"
#include "io/files.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;
constexpr std::size_t kContext = 16;  // ids before a stream that may influence how it begins

class Bytes final : public Tokenizer {
 public:
  std::string describe() const override { return "bytes, 256 tokens"; }
  std::int64_t vocab() const override { return ByteTokenizer::kVocab; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte));
  }
  std::string decode(std::span<const std::int32_t> ids, bool) const override { return ByteTokenizer().decode(ids); }
  std::optional<std::int32_t> token_id(std::string_view token) const override {
    return token.size() == 1 ? std::optional<std::int32_t>(static_cast<std::uint8_t>(token[0])) : std::nullopt;
  }
  std::string token(std::int32_t id) const override {
    return id >= 0 && id < ByteTokenizer::kVocab ? std::string(1, static_cast<char>(id)) : std::string();
  }
  bool cuts_at_spaces() const override { return true; }
};

std::string_view without_mark(std::string_view bytes) { return bytes.starts_with("\xEF\xBB\xBF") ? bytes.substr(3) : bytes; }

std::optional<base::Json> if_json(std::string_view text, const std::string& name, const base::JsonOptions& options) {
  try {
    return base::parse_json(text, name, options);
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

base::Json parse_json_file(std::string_view text, const std::string& name) {
  base::JsonOptions options{.strict = true, .max_bytes = static_cast<std::size_t>(kLargestFile)};
  try {
    return base::parse_json(text, name, options);
  } catch (const base::Error&) {
    options.strict = false;  // a run file may hold comments
    if (const auto json = if_json(text, name, options)) refuse_other_json(*json, name);
    throw;
  }
}

std::shared_ptr<Tokenizer> parse(std::string_view bytes, const std::string& name) {
  const std::string_view text = without_mark(bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) base::bad_input("'{}' is empty; expected a tokenizer.json or a SentencePiece model", name);
  // No SentencePiece model begins with a brace: as a protocol buffer that would be field 15 of a group.
  if (text[first] == '{') {
    const base::Json json = parse_json_file(text, name);
    refuse_other_json(json, name);
    if (is_bytes_json(json)) return std::make_shared<Bytes>();
    return read_json_tokenizer(json, name);
  }
  try {
    return read_sentence_piece(bytes, name);
  } catch (const base::Error&) {  // which says at what byte it makes no sense, of use for a damaged model only
    refuse_text(bytes, name);
    throw;
  }
}

}  // namespace

void Tokenizer::find_special() {
  SpecialTokens found = usual_tokens(*this);
  lay_over(found, special_);
  special_ = found;
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view bytes, const std::string& name) { return parse(bytes, name); }

std::shared_ptr<const Tokenizer> open_tokenizer(io::FileSystem& file_system, const std::string& name) {
  if (name == "bytes") return std::make_shared<Bytes>();
  if (!file_system.status(name))
    base::bad_input("there is no file '{}'; expected \"bytes\", a tokenizer.json or a SentencePiece .model", name);
  const std::optional<io::Path> file = tokenizer_file(file_system, name);
  if (!file) base::bad_input("the folder '{}' holds neither a tokenizer.json nor a SentencePiece .model", name);
  std::shared_ptr<Tokenizer> tokenizer = parse(io::read_text(file_system, *file, kLargestFile), file->string());
  lay_over(tokenizer->special_, named_beside(file_system, *file, *tokenizer));
  return tokenizer;
}

void StreamDecoder::start(std::span<const std::int32_t> context) {
  const auto last = context.last(std::min(context.size(), kContext));
  ids_.assign(last.begin(), last.end());
  begin_ = 0;
  told_ = ids_.size();
}

std::string StreamDecoder::next(std::int32_t id) {
  ids_.push_back(id);
  const std::span<const std::int32_t> all = std::span<const std::int32_t>(ids_).subspan(begin_);
  const std::string text = tokenizer_->decode(all);
  const std::string told = tokenizer_->decode(all.first(told_ - begin_));
  if (text.size() <= told.size() || text.ends_with(kReplacement)) return {};
  std::string news = text.substr(told.size());
  // White space alone is no good beginning: decoders may drop it there.
  if (news.find_first_not_of(" \t\r\n") != std::string::npos) begin_ = told_;
  told_ = ids_.size();
  return news;
}

std::string StreamDecoder::finish() {
  const std::span<const std::int32_t> all = std::span<const std::int32_t>(ids_).subspan(begin_);
  const std::string text = tokenizer_->decode(all);
  const std::string told = tokenizer_->decode(all.first(told_ - begin_));
  begin_ = told_ = ids_.size();
  return text.size() > told.size() ? text.substr(told.size()) : std::string();
}

}  // namespace plimsoll::formats::tokenizer
