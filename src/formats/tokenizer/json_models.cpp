#include "formats/tokenizer/json_models.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/tokenizer/bpe.h"
#include "formats/tokenizer/json_parts.h"
#include "formats/tokenizer/unigram_words.h"
#include "formats/tokenizer/word_level.h"
#include "formats/tokenizer/word_piece.h"

namespace plimsoll::formats::tokenizer {

namespace {

using base::Json;

// {"token": id, ...}
void read_vocabulary(const Json& model, TextTable& vocabulary) {
  const base::JsonObject& members = model.at("vocab").as_object();
  vocabulary.reserve(members.size());
  for (const base::JsonMember& member : members) {
    const std::int32_t id = read_id(member.value);
    if (!vocabulary.add(member.key, id))
      base::bad_input("{}: found id {} a second time, expected each token to have its own", member.value.where(), id);
  }
  if (vocabulary.size() == 0) model.at("vocab").fail_expected("at least one token");
}

// The package rounds twice where once would do: the digits to a whole number, then their quotient by a power of ten. Where two ways
// through a word weigh the same but for the last bit, that bit decides. Files hold the fewest digits that give the number back.
double as_the_package_reads(double score) {
  const std::string shortest = fmt::format("{}", std::fabs(score));
  std::string_view text = shortest;
  int exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string_view::npos) {
    exponent = std::atoi(shortest.c_str() + e + 1);
    text = text.substr(0, e);
  }
  std::uint64_t digits = 0;  // 17 at most
  bool behind_the_point = false;
  for (const char c : text) {
    if (c == '.') {
      behind_the_point = true;
      continue;
    }
    digits = digits * 10 + static_cast<std::uint64_t>(c - '0');
    if (behind_the_point) --exponent;
  }
  static constexpr std::array<double, 23> kPowers{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const auto places = static_cast<std::size_t>(std::abs(exponent));
  if (places >= kPowers.size()) return score;  // no score is so large or so small
  const auto value = static_cast<double>(digits);
  const double power = kPowers[places];
  return std::copysign(exponent >= 0 ? value * power : value / power, score);
}

// [["token", score], ...], where a token's place is its id. Of tokens with the same text the last is used, as in the package.
std::vector<double> read_scored_vocabulary(const Json& model, TextTable& vocabulary) {
  const Json::Array& pieces = model.at("vocab").as_array();
  if (pieces.empty() || std::ssize(pieces) > kMostTokens) {
    model.at("vocab").fail_expected(fmt::format("1 to {} tokens with their scores", kMostTokens));
  }
  std::vector<double> scores;
  scores.reserve(pieces.size());
  vocabulary.reserve(pieces.size());
  for (const Json& piece : pieces) {
    if (!piece.is_array() || piece.size() != 2) piece.fail_expected("a token and its score");
    vocabulary.add_again(piece.at(std::size_t{0}).as_string(), static_cast<std::int32_t>(scores.size()));
    scores.push_back(as_the_package_reads(piece.at(std::size_t{1}).as_double()));
  }
  return scores;
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> read_merge(const Json& json) {
  if (json.is_array() && json.size() == 2) return {json.at(std::size_t{0}).as_string(), json.at(std::size_t{1}).as_string()};
  const std::string& text = json.as_string();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    json.fail_expected("two tokens with one space between them");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::unique_ptr<Model> read_bpe(const Json& json, const std::string& name, bool byte_symbols, const TextTable& vocabulary) {
  if (const Json* dropout = json.find("dropout"); dropout != nullptr && !dropout->is_null() && dropout->as_double() != 0.0) {
    base::bad_input("{}: found a dropout of {}, expected null: encoding must not be random", dropout->where(), dropout->as_double());
  }
  BpeOptions options{.name = name, .merges = {}};
  const Json::Array& merges = json.at("merges").as_array();
  options.merges.reserve(merges.size());
  for (const Json& merge : merges) options.merges.push_back(read_merge(merge));
  options.unknown = text(json, "unk_token");
  options.prefix = text(json, "continuing_subword_prefix");
  options.suffix = text(json, "end_of_word_suffix");
  options.fuse_unknown = flag(json, "fuse_unk", false);
  options.byte_fallback = flag(json, "byte_fallback", false);
  options.ignore_merges = flag(json, "ignore_merges", false);
  options.byte_symbols = byte_symbols;
  return std::make_unique<Bpe>(vocabulary, options);
}

std::unique_ptr<Model> read_word_piece(const Json& json, const std::string& name, const TextTable& vocabulary) {
  WordPieceOptions options{.name = name, .unknown = json.at("unk_token").as_string()};
  if (json.find("continuing_subword_prefix") != nullptr) options.prefix = text(json, "continuing_subword_prefix");
  if (const Json* longest = json.find("max_input_chars_per_word")) options.longest_word = longest->as_integer();
  return std::make_unique<WordPiece>(vocabulary, options);
}

std::unique_ptr<Model> read_unigram(const Json& json, const std::string& name, TextTable& vocabulary) {
  const std::vector<double> scores = read_scored_vocabulary(json, vocabulary);
  UnigramOptions options{.name = name, .unknown = {}, .byte_fallback = flag(json, "byte_fallback", false)};
  if (const Json* unknown = json.find("unk_id"); unknown != nullptr && !unknown->is_null()) {
    options.unknown = read_id(*unknown);
    if (!vocabulary.has(*options.unknown)) unknown->fail_expected(fmt::format("an id below {}, the size of the vocabulary", scores.size()));
  }
  return std::make_unique<UnigramWords>(vocabulary, scores, options);
}

}  // namespace

std::string model_kind(const Json& json) {
  // Files of the first versions do not say.
  const std::string kind = json.find("type") != nullptr ? type_of(json) : json.find("merges") != nullptr ? "BPE" : "WordPiece";
  if (kind != "BPE" && kind != "WordPiece" && kind != "Unigram" && kind != "WordLevel") unsupported(json, "model", kind);
  return kind;
}

bool takes_bytes(const std::string& kind) { return kind == "BPE"; }

std::unique_ptr<Model> read_model(const Json& json, const std::string& name, bool byte_symbols, TextTable& vocabulary) {
  const std::string kind = model_kind(json);
  if (kind == "Unigram") return read_unigram(json, name, vocabulary);
  read_vocabulary(json, vocabulary);
  if (kind == "BPE") return read_bpe(json, name, byte_symbols, vocabulary);
  if (kind == "WordPiece") return read_word_piece(json, name, vocabulary);
  return std::make_unique<WordLevel>(vocabulary, name, text(json, "unk_token"));
}

}  // namespace plimsoll::formats::tokenizer
