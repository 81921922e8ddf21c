#include "formats/tokenizer/decoder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/tokenizer/byte_level.h"
#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

class ByteLevelDecoder final : public Decoder {
  // A token with a character that stands for no byte is taken as it is. Characters may be spread over tokens, so the
  // bytes are put together first.
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += characters_to_bytes(token).value_or(token);
    tokens = {valid_utf8(bytes) ? std::move(bytes) : repair_utf8(bytes)};
  }
};

std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

class ByteFallback final : public Decoder {
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (valid_utf8(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_token(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder {
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {std::move(all)};
  }
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(std::unique_ptr<Pattern> pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::vector<std::string>& tokens) const override {
    std::vector<Range> matches;
    for (std::string& token : tokens) {
      matches.clear();
      pattern_->find(token, matches);
      for (auto match = matches.rbegin(); match != matches.rend(); ++match)
        token.replace(match->begin, match->end - match->begin, content_);
    }
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, std::int64_t start, std::int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      // The marks of the first token were put there, or are taken to have been.
      replace_all(tokens[i], mark_, i == 0 && prepended_ ? "" : " ");
    }
  }

 private:
  std::string mark_;
  bool prepended_;
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kCleanups{{{" .", "."},
                                                                                   {" ?", "?"},
                                                                                   {" !", "!"},
                                                                                   {" ,", ","},
                                                                                   {" ' ", "'"},
                                                                                   {" n't", "n't"},
                                                                                   {" 'm", "'m"},
                                                                                   {" do not", " don't"},
                                                                                   {" 's", "'s"},
                                                                                   {" 've", "'ve"},
                                                                                   {" 're", "'re"}}};

class WordPieces final : public Decoder {
 public:
  WordPieces(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(0, " ");
      }
      if (!cleanup_) continue;
      for (const auto& [from, to] : kCleanups) replace_all(token, from, to);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class Suffix final : public Decoder {
 public:
  explicit Suffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

void read_into(const Json& json, Decoders& out) {
  if (json.is_null()) return;
  const std::string& type = type_of(json);
  if (type == "Sequence") {
    for (const Json& step : json.at("decoders").as_array()) read_into(step, out);
  } else if (type == "ByteLevel") {
    out.push_back(std::make_unique<ByteLevelDecoder>());
  } else if (type == "ByteFallback") {
    out.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Fuse") {
    out.push_back(std::make_unique<Fuse>());
  } else if (type == "Replace") {
    out.push_back(std::make_unique<ReplaceDecoder>(read_pattern(json.at("pattern")), json.at("content").as_string()));
  } else if (type == "Strip") {
    const std::string& content = json.at("content").as_string();
    if (content.empty()) json.at("content").fail_expected("one character");
    out.push_back(std::make_unique<StripDecoder>(content, json.at("start").as_integer(), json.at("stop").as_integer()));
  } else if (type == "Metaspace") {
    const bool prepended =
        json.find("prepend_scheme") != nullptr ? text(json, "prepend_scheme") != "never" : flag(json, "add_prefix_space", true);
    const std::string mark = text(json, "replacement");
    out.push_back(std::make_unique<MetaspaceDecoder>(mark.empty() ? std::string(kSpaceMark) : mark, prepended));
  } else if (type == "WordPiece") {
    out.push_back(std::make_unique<WordPieces>(json.find("prefix") != nullptr ? text(json, "prefix") : "##", flag(json, "cleanup", true)));
  } else if (type == "BPEDecoder") {
    out.push_back(std::make_unique<Suffix>(json.find("suffix") != nullptr ? text(json, "suffix") : "</w>"));
  } else {
    unsupported(json, "decoder", type);
  }
}

}  // namespace

Decoders read_decoders(const Json& json) {
  Decoders decoders;
  read_into(json, decoders);
  return decoders;
}

}  // namespace plimsoll::formats::tokenizer
