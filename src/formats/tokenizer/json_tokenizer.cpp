#include "formats/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "formats/tokenizer/added_tokens.h"
#include "formats/tokenizer/decoder.h"
#include "formats/tokenizer/json_models.h"
#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/pool.h"
#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

constexpr std::size_t kLongestText = std::size_t{1} << 30;
struct Around {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

struct Workspace {
  Scratch scratch;
  Pieces pieces;
  std::vector<Section> raw;
  std::vector<Section> normalised;
};

void read_around(const Json& json, Around& around);

void read_template(const Json& json, Around& around) {
  const Json& special = json.at("special_tokens");
  bool before = true;
  for (const Json& part : json.at("single").as_array()) {
    if (part.find("Sequence") != nullptr) {
      before = false;
      continue;
    }
    for (const Json& id : special.at(part.at("SpecialToken").at("id").as_string()).at("ids").as_array()) {
      (before ? around.before : around.after).push_back(read_id(id));
    }
  }
}

void read_bert_processing(const Json& json, Around& around) {
  const auto id_of = [&](std::string_view key) { return read_id(json.at(key).at(std::size_t{1})); };
  around.before.push_back(id_of("cls"));
  around.after.push_back(id_of("sep"));
}

void read_around(const Json& json, Around& around) {
  if (json.is_null()) return;
  const std::string& type = type_of(json);
  if (type == "Sequence") {
    for (const Json& step : json.at("processors").as_array()) read_around(step, around);
  } else if (type == "TemplateProcessing") {
    read_template(json, around);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_bert_processing(json, around);
  } else if (type != "ByteLevel") {  // which only moves offsets
    unsupported(json, "post-processor", type);
  }
}

const Json& part(const Json& json, std::string_view key) {
  static const Json kNull;
  const Json* found = json.find(key);
  return found != nullptr ? *found : kNull;
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const Json& json, const std::string& name)
      : name_(name),
        added_(json.find("added_tokens") != nullptr ? read_added_tokens(json.at("added_tokens")) : std::vector<AddedToken>{}),
        normalizers_(read_normalizers(part(json, "normalizer"))),
        decoders_(read_decoders(part(json, "decoder"))) {
    const Json& model = json.at("model");
    kind_ = model_kind(model);
    PreTokenizers pre_tokenizers = read_pre_tokenizers(part(json, "pre_tokenizer"), takes_bytes(kind_));
    pre_tokenizers_ = std::move(pre_tokenizers.steps);
    model_ = read_model(model, name, pre_tokenizers.ends_in_bytes, vocabulary_);
    settle_added();
    raw_.emplace(added_, false, normalizers_);
    normalised_.emplace(added_, true, normalizers_);
    read_around(part(json, "post_processor"), around_);
    cuts_ = can_cut(json);
    read_special(json);
  }

  std::string describe() const override {
    return fmt::format("tokenizer.json, {}, {} tokens, {} of them added", kind_, vocab(), added_.size());
  }
  std::int64_t vocab() const override { return vocab_; }
  std::vector<std::int32_t> before() const override { return around_.before; }
  std::vector<std::int32_t> after() const override { return around_.after; }
  bool cuts_at_spaces() const override { return cuts_; }

  std::optional<std::int32_t> token_id(std::string_view token) const override {
    for (const AddedToken& added : added_) {
      if (added.content == token) return added.id;
    }
    const std::int32_t id = vocabulary_.find(token);
    return id == TextTable::kNone ? std::nullopt : std::optional(id);
  }

  std::string token(std::int32_t id) const override {
    if (const auto added = added_by_id_.find(id); added != added_by_id_.end()) return added_[added->second].content;
    return vocabulary_.has(id) ? std::string(vocabulary_.text_of(id)) : std::string();
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    if (text.size() > kLongestText)
      base::bad_input("a text of {} bytes is too long to encode at once; at most {} are", text.size(), kLongestText);
    if (!valid_utf8(text)) return encode(repair_utf8(text), ids);
    const Pool<Workspace>::Lease lease = pool_.take();
    Workspace& work = *lease;
    work.raw.clear();
    raw_->find(text, work.raw);
    for (const Section& section : work.raw) {
      if (section.id != TextTable::kNone) {
        ids.push_back(section.id);
        continue;
      }
      const std::string_view part = text.substr(section.range.begin, section.range.end - section.range.begin);
      if (normalizers_.empty()) {
        encode_normalised(part, section.range.begin == 0, work, ids);
      } else {
        bool at_start = section.range.begin == 0;
        const std::string normalised = apply(normalizers_, std::string(part), at_start);
        encode_normalised(normalised, at_start, work, ids);
      }
    }
  }

  std::string decode(std::span<const std::int32_t> ids, bool special) const override {
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) {
      const auto added = added_by_id_.find(id);
      if (added != added_by_id_.end()) {
        if (special || !added_[added->second].special) tokens.push_back(added_texts_[added->second]);
      } else if (vocabulary_.has(id)) {
        tokens.emplace_back(vocabulary_.text_of(id));
      }
    }
    for (const auto& decoder : decoders_) decoder->apply(tokens);
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && decoders_.empty() ? " " : "") + tokens[i];
    return text;
  }

 private:
  void read_special(const Json& json) {
    if (const Json& padding = part(json, "padding"); padding.is_object() && padding.find("pad_token") != nullptr)
      special_.pad = token_id(padding.at("pad_token").as_string());
    const Json& model = json.at("model");
    if (const Json& unknown = part(model, "unk_token"); unknown.is_string()) special_.unknown = token_id(unknown.as_string());
    find_special();
  }

  // The id of an added token that is also in the model's vocabulary is the model's.
  void settle_added() {
    std::vector<AddedToken> kept;
    std::set<std::string> contents;
    for (AddedToken& token : added_) {
      if (token.content.empty() || !contents.insert(token.content).second) continue;
      const std::int32_t known = vocabulary_.find(token.content);
      if (known != TextTable::kNone && known != token.id) {
        base::bad_input("'{}': the added token \"{}\" has id {}, but the vocabulary has it as {}", name_, token.content, token.id, known);
      }
      if (known == TextTable::kNone && vocabulary_.has(token.id)) {
        base::bad_input("'{}': the added token \"{}\" has id {}, which the vocabulary gives to \"{}\"", name_, token.content, token.id,
                        vocabulary_.text_of(token.id));
      }
      if (!added_by_id_.emplace(token.id, kept.size()).second) {
        base::bad_input("'{}': two added tokens have id {}", name_, token.id);
      }
      kept.push_back(std::move(token));
    }
    added_ = std::move(kept);
    for (const AddedToken& token : added_) added_texts_.push_back(text_of(token, normalizers_));
    vocab_ = vocabulary_.limit();
    for (const AddedToken& token : added_) vocab_ = std::max<std::int64_t>(vocab_, token.id + 1);
  }

  bool can_cut(const Json& json) const {
    static constexpr std::array<std::string_view, 7> kNormalizers{"NFC",       "NFD",          "NFKC",          "NFKD",
                                                                  "Lowercase", "StripAccents", "BertNormalizer"};
    for (const AddedToken& token : added_) {
      if (token.content.find(' ') != std::string::npos) return false;
    }
    const Json& normalizer = part(json, "normalizer");
    const bool plain = normalizer.is_null() ||
                       std::find(kNormalizers.begin(), kNormalizers.end(), type_of(normalizer)) != kNormalizers.end() ||
                       (type_of(normalizer) == "Sequence" && normalizer.at("normalizers").size() == 0);
    const auto count = [&](AtSpaces kind) {
      return std::count_if(pre_tokenizers_.begin(), pre_tokenizers_.end(), [&](const auto& step) { return step->at_spaces() == kind; });
    };
    return plain && count(AtSpaces::unknown) == 0 && count(AtSpaces::cuts) > 0;
  }

  void encode_normalised(std::string_view text, bool begins_input, Workspace& work, std::vector<std::int32_t>& ids) const {
    if (normalised_->empty()) return encode_plain(text, begins_input, work, ids);
    work.normalised.clear();
    normalised_->find(text, work.normalised);
    for (const Section& section : work.normalised) {
      if (section.id != TextTable::kNone) {
        ids.push_back(section.id);
      } else {
        encode_plain(text.substr(section.range.begin, section.range.end - section.range.begin), begins_input && section.range.begin == 0,
                     work, ids);
      }
    }
  }

  void encode_plain(std::string_view text, bool begins_input, Workspace& work, std::vector<std::int32_t>& ids) const {
    Pieces& pieces = work.pieces;
    if (text.empty()) return;
    pieces.text = text;
    pieces.begins_input = begins_input;
    pieces.ranges.assign(1, {0, text.size()});
    for (const auto& step : pre_tokenizers_) step->apply(pieces);
    for (const Range& range : pieces.ranges) {
      if (range.begin < range.end) model_->encode_word(pieces.at(range), pieces.text.size() - range.begin, work.scratch, ids);
    }
  }

  std::string name_;
  std::string kind_;
  std::vector<AddedToken> added_;
  std::vector<std::string> added_texts_;  // of added_, as they are decoded
  std::map<std::int32_t, std::size_t> added_by_id_;
  Normalizers normalizers_;
  Decoders decoders_;
  TextTable vocabulary_;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers_;
  std::unique_ptr<Model> model_;
  std::optional<TokenFinder> raw_;
  std::optional<TokenFinder> normalised_;
  Around around_;
  std::int64_t vocab_ = 0;
  bool cuts_ = false;
  mutable Pool<Workspace> pool_;
};

}  // namespace

std::shared_ptr<Tokenizer> read_json_tokenizer(const Json& json, const std::string& name) {
  return std::make_shared<JsonTokenizer>(json, name);
}

}  // namespace plimsoll::formats::tokenizer
