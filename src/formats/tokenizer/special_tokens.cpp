// Which tokens have a part to play: the files beside a tokenizer, then usual names.
#include "formats/tokenizer/special_tokens.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/json.h"
#include "io/files.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

constexpr std::int64_t kLargestCompanion = std::int64_t{64} << 20;

constexpr std::array<std::string_view, 5> kFileNames{"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                                                     "sentencepiece.model"};

// "<s>", or {"content": "<s>", ...}, or null.
std::string content_of(const Json* token) {
  if (token != nullptr && token->is_object()) token = token->find("content");
  return token != nullptr && token->is_string() ? token->as_string() : std::string();
}

}  // namespace

SpecialTokens usual_tokens(const Tokenizer& tokenizer) {
  const auto first = [&](std::initializer_list<std::string_view> names) -> std::optional<std::int32_t> {
    for (const std::string_view name : names) {
      if (const auto id = tokenizer.token_id(name)) return id;
    }
    return std::nullopt;
  };
  return {.begin = first({"<|begin_of_text|>", "<s>", "<bos>", "[CLS]", "<｜begin▁of▁sentence｜>"}),
          .end = first(
              {"<|endoftext|>", "<|end_of_text|>", "</s>", "<｜end▁of▁sentence｜>", "<eos>", "<|im_end|>", "[SEP]", "<|end|>", "[EOS]"}),
          .pad = first({"[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<PAD>"}),
          .mask = first({"[MASK]", "<mask>", "<|mask|>", "<MASK>", "<extra_id_mask>"}),
          .unknown = first({"[UNK]", "<unk>", "<|unk|>", "<UNK>"})};
}

void lay_over(SpecialTokens& below, const SpecialTokens& above) {
  const auto lay = [](std::optional<std::int32_t>& old, const std::optional<std::int32_t>& value) {
    if (value) old = value;
  };
  lay(below.begin, above.begin);
  lay(below.end, above.end);
  lay(below.pad, above.pad);
  lay(below.mask, above.mask);
  lay(below.unknown, above.unknown);
}

SpecialTokens named_beside(io::FileSystem& file_system, const io::Path& file, const Tokenizer& tokenizer) {
  SpecialTokens named;
  if (!has_companions(file)) return named;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the second is what transformers goes by
    const io::Path path = file.parent_path() / name;
    if (!file_system.status(path)) continue;
    const Json json = base::parse_json(io::read_text(file_system, path, kLargestCompanion), path.string(), {.strict = true});
    if (!json.is_object()) continue;
    const auto id_of = [&](std::string_view key) { return tokenizer.token_id(content_of(json.find(key))); };
    lay_over(named, {.begin = id_of("bos_token"),
                     .end = id_of("eos_token"),
                     .pad = id_of("pad_token"),
                     .mask = id_of("mask_token"),
                     .unknown = id_of("unk_token")});
  }
  return named;
}

bool has_companions(const io::Path& file) {
  return std::find(kFileNames.begin(), kFileNames.end(), file.filename().string()) != kFileNames.end();
}

std::optional<io::Path> tokenizer_file(io::FileSystem& file_system, const std::string& name) {
  if (name == "bytes") return std::nullopt;
  const auto status = file_system.status(name);
  if (!status) return std::nullopt;
  if (status->kind != io::EntryKind::directory) return io::Path(name);
  for (const std::string_view file : kFileNames) {
    io::Path path = io::Path(name) / file;
    if (file_system.status(path)) return path;
  }
  return std::nullopt;
}

}  // namespace plimsoll::formats::tokenizer
