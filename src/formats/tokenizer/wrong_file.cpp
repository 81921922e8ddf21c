#include "formats/tokenizer/wrong_file.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::string_view kExpected = "expected a tokenizer.json or a SentencePiece .model";

bool is_text(std::string_view bytes) {
  constexpr std::size_t kLookedAt = std::size_t{1} << 16;
  const std::string_view head = bytes.substr(0, kLookedAt);
  const std::size_t good = valid_prefix(head);
  constexpr std::size_t kLongestCharacter = 4;
  if (good + (head.size() < bytes.size() ? kLongestCharacter : 0) < head.size()) return false;
  return std::none_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<std::uint8_t>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f') || byte == 0x7F;
  });
}

bool has_line(std::string_view text, std::string_view line) {
  for (std::size_t at = text.find(line); at != std::string_view::npos; at = text.find(line, at + 1)) {
    const std::size_t end = at + line.size();
    if ((at == 0 || text[at - 1] == '\n') && (end == text.size() || text[end] == '\n' || text[end] == '\r')) return true;
  }
  return false;
}

}  // namespace

void refuse_other_json(const base::Json& json, const std::string& name) {
  if (!json.is_object()) base::bad_input("'{}' holds {}; {}", name, json.describe(), kExpected);
  const base::Json* model = json.find("model");
  const auto has = [&](std::string_view key) { return json.find(key) != nullptr; };
  const base::Json* vocab = model != nullptr && model->is_object() ? model->find("vocab") : nullptr;
  const bool describes_tokens =
      model != nullptr && model->is_object() && (model->find("type") != nullptr || (vocab != nullptr && !vocab->is_integer()));
  if (describes_tokens) return;
  constexpr std::array<std::string_view, 6> kOfRuns{"data", "batch", "steps", "optimizer", "strategy", "out"};
  if (std::any_of(kOfRuns.begin(), kOfRuns.end(), has)) base::bad_input("'{}' is a run file; {}", name, kExpected);
  if (has("tokenizer_class") || has("added_tokens_decoder"))
    base::bad_input("'{}' is a tokenizer_config.json, which only names tokens; name the tokenizer.json beside it", name);
  if (has("model_type") || has("architectures"))
    base::bad_input("'{}' is JSON without a \"model\": the config.json of a model; name the tokenizer.json beside it", name);
  const auto& members = json.as_object();
  const bool all_ids = !members.empty() && std::all_of(members.begin(), members.end(), [](const auto& m) { return m.value.is_integer(); });
  if (all_ids)
    base::bad_input(
        "'{}' is a vocab.json, which without its merges is half a tokenizer; name the tokenizer.json beside it, or make one: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        name);
  if (model == nullptr)
    base::bad_input("'{}' is JSON without a \"model\"; expected a tokenizer.json as the `tokenizers` package writes it", name);
}

void refuse_text(std::string_view bytes, const std::string& name) {
  if (!is_text(bytes)) return;
  constexpr std::string_view kMakeOne = "make one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)";
  if (bytes.starts_with("#version"))
    base::bad_input("'{}' is a merges.txt, half a tokenizer; name the tokenizer.json beside it, or {}", name, kMakeOne);
  if (has_line(bytes, "[UNK]"))
    base::bad_input("'{}' is a vocab.txt, a list of tokens; name the tokenizer.json beside it, or {}", name, kMakeOne);
  if (bytes.starts_with("<unk>\t"))
    base::bad_input("'{}' is a SentencePiece .vocab, a list of pieces for people; name the .model beside it", name);
  base::bad_input("'{}' is a text file and no SentencePiece model; {}", name, kExpected);
}

}  // namespace plimsoll::formats::tokenizer
