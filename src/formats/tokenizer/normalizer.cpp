#include "formats/tokenizer/normalizer.h"

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"
#include "formats/tokenizer/byte_level.h"
#include "formats/tokenizer/charsmap.h"
#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/unicode.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

template <typename Action>
void for_each_character(std::string_view text, Action action) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = decode_at(text.data() + at);
    action(character.code, text.substr(at, character.length));
    at += character.length;
  }
}

// What `write(code, bytes, out)` makes of each character; one of which it makes nothing is dropped.
template <typename Write>
std::string rewritten(std::string_view text, bool& at_start, Write write) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  for_each_character(text, [&](std::uint32_t code, std::string_view bytes) {
    write(code, bytes, out);
    if (at == 0 && out.empty()) at_start = false;
    at += bytes.size();
  });
  return out;
}

std::string without(std::string_view text, std::uint16_t traits, bool& at_start) {
  const CharacterTable& table = CharacterTable::get();
  return rewritten(text, at_start, [&](std::uint32_t code, std::string_view bytes, std::string& out) {
    if (!table.is(code, traits)) out += bytes;
  });
}

std::string lower(std::string text) {
  if (is_ascii(text)) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return text;
  }
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](std::uint32_t code, std::string_view) { append_lower(out, code); });
  return out;
}

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  std::string apply(std::string text, bool&) const override { return normalise(form_, text); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
  std::string apply(std::string text, bool&) const override { return lower(std::move(text)); }
};

class StripAccents final : public Normalizer {
  std::string apply(std::string text, bool& at_start) const override {
    return is_ascii(text) ? text : without(text, trait::kAccent, at_start);
  }
};

class ByteLevelNormalizer final : public Normalizer {
  std::string apply(std::string text, bool&) const override { return bytes_to_characters(text); }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : prefix_(std::move(text)) {}
  std::string apply(std::string text, bool&) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(std::unique_ptr<Pattern> pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string apply(std::string text, bool& at_start) const override {
    std::vector<Range> matches;
    pattern_->find(text, matches);
    if (matches.empty()) return text;
    std::string out;
    out.reserve(text.size());
    std::size_t end = 0;
    for (const Range& match : matches) {
      // One character for another is still the first; what stands for several belongs to the last of them.
      if (match.begin == 0 && match.end > length_of(text[0])) at_start = false;
      if (match.begin == 0 && content_.empty()) at_start = false;
      out.append(text, end, match.begin - end).append(content_);
      end = match.end;
    }
    return out.append(text, end);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  std::string apply(std::string text, bool& at_start) const override {
    const CharacterTable& table = CharacterTable::get();
    std::size_t begin = text.size();
    std::size_t end = 0;
    std::size_t at = 0;
    for_each_character(text, [&](std::uint32_t code, std::string_view bytes) {
      if (!table.is(code, trait::kSpace)) {
        begin = std::min(begin, at);
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    if (begin > 0) at_start = false;
    return begin < end ? text.substr(begin, end - begin) : std::string();
  }

 private:
  bool left_;
  bool right_;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const Json& json)
      : clean_(flag(json, "clean_text", true)),
        chinese_(flag(json, "handle_chinese_chars", true)),
        lowercase_(flag(json, "lowercase", true)) {
    strip_accents_ = flag(json, "strip_accents", lowercase_);
  }

  std::string apply(std::string text, bool& at_start) const override {
    if (clean_) text = clean(text, at_start);
    if (chinese_ && !is_ascii(text)) text = space_out_ideographs(text);
    if (strip_accents_ && !is_ascii(text)) text = without(normalise(NormalForm::nfd, text), trait::kBertMark, at_start);
    return lowercase_ ? lower(std::move(text)) : text;
  }

 private:
  static std::string clean(std::string_view text, bool& at_start) {
    const CharacterTable& table = CharacterTable::get();
    return rewritten(text, at_start, [&](std::uint32_t code, std::string_view bytes, std::string& out) {
      const std::uint16_t traits = table.traits(code);
      if ((traits & trait::kBertControl) == 0) out += (traits & trait::kSpace) != 0 ? " " : bytes;
    });
  }

  static bool is_ideograph(std::uint32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) || (code >= 0x20000 && code <= 0x2A6DF) ||
           (code >= 0x2A700 && code <= 0x2B73F) || (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
           (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
  }

  static std::string space_out_ideographs(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for_each_character(text, [&](std::uint32_t code, std::string_view bytes) {
      const bool ideograph = is_ideograph(code);
      if (ideograph) out += ' ';
      out += bytes;
      if (ideograph) out += ' ';
    });
    return out;
  }

  bool clean_;
  bool chinese_;
  bool lowercase_;
  bool strip_accents_ = false;
};

// SentencePiece's rules as the package applies them, which is not as SentencePiece does: to each short cluster of characters that a
// reader takes for one, by the rule for its shortest beginning, which replaces all of it; else to each character alone.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const Json& json) : rules_(read(json), json.where()) {}

  std::string apply(std::string text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = cluster_end(text, at);
      const std::string_view cluster = std::string_view(text).substr(at, end - at);
      at = end;
      if (cluster.size() < kLongCluster && replace(cluster, out)) continue;
      for_each_character(cluster, [&](std::uint32_t, std::string_view bytes) {
        if (!replace(bytes, out)) out += bytes;
      });
    }
    return out;
  }

 private:
  static constexpr std::size_t kLongCluster = 6;  // bytes

  static std::string read(const Json& json) {
    const Json& blob = json.at("precompiled_charsmap");
    if (blob.is_null()) return {};
    const auto bytes = base::decode_base64(blob.as_string());
    if (!bytes) base::bad_input("{}: expected the rules of normalisation in base64", blob.where());
    return *bytes;
  }

  bool replace(std::string_view text, std::string& out) const {
    const Charsmap::Rule rule = rules_.shortest(text);
    out += rule.text;
    return rule.length > 0;
  }

  Charsmap rules_;
};

class Nmt final : public Normalizer {
  std::string apply(std::string text, bool& at_start) const override {
    return rewritten(text, at_start, [&](std::uint32_t code, std::string_view bytes, std::string& out) {
      if (!is_dropped(code)) out += is_space(code) ? " " : bytes;
    });
  }

  static bool is_dropped(std::uint32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F;
  }
  static bool is_space(std::uint32_t code) {
    return code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 || (code >= 0x200B && code <= 0x200F) ||
           code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  }
};

void read_into(const Json& json, Normalizers& out) {
  if (json.is_null()) return;
  const std::string& type = type_of(json);
  if (type == "Sequence") {
    for (const Json& step : json.at("normalizers").as_array()) read_into(step, out);
  } else if (type == "NFC") {
    out.push_back(std::make_unique<Form>(NormalForm::nfc));
  } else if (type == "NFD") {
    out.push_back(std::make_unique<Form>(NormalForm::nfd));
  } else if (type == "NFKC") {
    out.push_back(std::make_unique<Form>(NormalForm::nfkc));
  } else if (type == "NFKD") {
    out.push_back(std::make_unique<Form>(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    out.push_back(std::make_unique<Lowercase>());
  } else if (type == "StripAccents") {
    out.push_back(std::make_unique<StripAccents>());
  } else if (type == "ByteLevel") {
    out.push_back(std::make_unique<ByteLevelNormalizer>());
  } else if (type == "Prepend") {
    out.push_back(std::make_unique<Prepend>(json.at("prepend").as_string()));
  } else if (type == "Replace") {
    out.push_back(std::make_unique<ReplaceNormalizer>(read_pattern(json.at("pattern")), json.at("content").as_string()));
  } else if (type == "Strip") {
    out.push_back(std::make_unique<StripNormalizer>(flag(json, "strip_left", true), flag(json, "strip_right", true)));
  } else if (type == "BertNormalizer") {
    out.push_back(std::make_unique<Bert>(json));
  } else if (type == "Precompiled") {
    out.push_back(std::make_unique<Precompiled>(json));
  } else if (type == "Nmt") {
    out.push_back(std::make_unique<Nmt>());
  } else {
    unsupported(json, "normalizer", type);
  }
}

}  // namespace

Normalizers read_normalizers(const Json& json) {
  Normalizers normalizers;
  read_into(json, normalizers);
  return normalizers;
}

std::string apply(const Normalizers& normalizers, std::string text, bool& at_start) {
  for (const auto& normalizer : normalizers) text = normalizer->apply(std::move(text), at_start);
  return text;
}

}  // namespace plimsoll::formats::tokenizer
