// A tokenizer: text to ids and back. Three kinds: bytes, a tokenizer.json, a SentencePiece .model.
//
//   auto tokenizer = open_tokenizer(file_system, "tokenizer.json");
//   std::vector<std::int32_t> ids = tokenizer->encode("In the beginning");
//
// Encoding equals the `tokenizers` and `sentencepiece` packages'. Text that is not UTF-8 is read with U+FFFD in the place
// of each wrong part (the byte tokenizer takes every byte). All verbs may be used from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::formats::tokenizer {

// Tokens with a part to play, by id: those that the files beside the tokenizer name (tokenizer_config.json, special_tokens_map.json), else
// those that it says itself or that have one of the usual names.
struct SpecialTokens {
  std::optional<std::int32_t> begin;  // of a text
  std::optional<std::int32_t> end;    // of a text or document
  std::optional<std::int32_t> pad;
  std::optional<std::int32_t> mask;
  std::optional<std::int32_t> unknown;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "BPE, 50257 tokens, 1 of them added": for people.
  virtual std::string describe() const = 0;
  // One more than the largest id; a model's vocabulary must be at least this.
  virtual std::int64_t vocab() const = 0;
  // Appends the ids of `text`, without anything around it.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  // Ids that are no tokens become nothing (the byte tokenizer: U+FFFD); `special` tokens are left out unless asked for.
  virtual std::string decode(std::span<const std::int32_t> ids, bool special = false) const = 0;
  virtual std::optional<std::int32_t> token_id(std::string_view token) const = 0;
  // What the tokenizer's file calls a token; empty when there is none of that id.
  virtual std::string token(std::int32_t id) const = 0;
  // The ids that the tokenizer puts before and after a text when it is asked for special tokens: [CLS] ... [SEP].
  virtual std::vector<std::int32_t> before() const { return {}; }
  virtual std::vector<std::int32_t> after() const { return {}; }
  const SpecialTokens& special() const { return special_; }
  std::optional<std::int32_t> end_of_text() const { return special_.end; }
  // True when cutting a text before a space between two letters never changes its ids.
  virtual bool cuts_at_spaces() const { return false; }

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }

 protected:
  // Fills what is still open of special() from the usual names.
  void find_special();
  SpecialTokens special_;

 private:
  friend std::shared_ptr<const Tokenizer> open_tokenizer(io::FileSystem& file_system, const std::string& name);
};

// The file that a name of a tokenizer stands for: in a folder its tokenizer.json, else its SentencePiece model. None for "bytes" and where
// there is no such file.
std::optional<io::Path> tokenizer_file(io::FileSystem& file_system, const std::string& name);

// Whether files beside it speak of this tokenizer: it has the name that it has in model folders.
bool has_companions(const io::Path& file);

// "bytes", or the path of a tokenizer.json or a SentencePiece model, told apart by content. Bad input says which part of the
// file is wrong or not supported.
std::shared_ptr<const Tokenizer> open_tokenizer(io::FileSystem& file_system, const std::string& name);

// From the bytes of a file; `name` is what messages call it.
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view bytes, const std::string& name);

// Ids one at a time to text as it becomes certain: a character spread over tokens comes with its last one.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  // `context` is what stands before the stream, such as the prompt's ids.
  void start(std::span<const std::int32_t> context);
  std::string next(std::int32_t id);
  std::string finish();  // what is left: characters that never became whole

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int32_t> ids_;
  std::size_t begin_ = 0;  // what is decoded together begins here: one stretch before the one to come
  std::size_t told_ = 0;   // the text of the ids before is out
};

}  // namespace plimsoll::formats::tokenizer
