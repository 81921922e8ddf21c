#include "formats/tokenizer/bytes_json.h"

#include "formats/tokenizer/byte_level.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

constexpr int kBytes = 256;

Json mask_token() {
  return Json::object({{"id", kBytes},
                       {"content", "[MASK]"},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
}

Json model_json() {
  Json vocab = Json::object();
  for (int byte = 0; byte < kBytes; ++byte) vocab.set(bytes_to_characters(std::string(1, static_cast<char>(byte))), byte);
  return Json::object({{"type", "BPE"},
                       {"dropout", Json()},
                       {"unk_token", Json()},
                       {"continuing_subword_prefix", Json()},
                       {"end_of_word_suffix", Json()},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"vocab", std::move(vocab)},
                       {"merges", Json::array()}});
}

}  // namespace

std::string bytes_json(bool mask) {
  Json added = Json::array();
  if (mask) added.push(mask_token());
  const Json level = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return base::write_json(Json::object({{"version", "1.0"},
                                        {"truncation", Json()},
                                        {"padding", Json()},
                                        {"added_tokens", std::move(added)},
                                        {"normalizer", Json()},
                                        {"pre_tokenizer", level},
                                        {"post_processor", Json()},
                                        {"decoder", level},
                                        {"model", model_json()}}));
}

bool is_bytes_json(const Json& json) {
  const Json* model = json.find("model");
  const Json* vocab = model != nullptr && model->is_object() ? model->find("vocab") : nullptr;
  if (vocab == nullptr || !vocab->is_object() || vocab->size() != kBytes) return false;
  return json == base::parse_json(bytes_json(false), "bytes");
}

}  // namespace plimsoll::formats::tokenizer
