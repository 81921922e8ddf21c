#include "formats/tokenizer/unigram.h"

#include <algorithm>

#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr int kUnknownPenalty = 10;  // below the lowest score of a piece
// A user-defined piece scores this for each byte behind its first, since SentencePiece 0.2.2: no less than ordinary pieces of the same
// text, whose scores are logarithms. Before, each scored -0.1.
constexpr double kAlwaysPerByte = 0.1;

template <typename Score>
struct Best {
  Score score = 0;
  std::int32_t id = 0;
  std::int64_t begin = -1;  // of the piece that ends here; -1: none does
};

}  // namespace

template <typename Score>
Unigram<Score>::Unigram(const std::vector<UnigramPiece>& pieces, std::int32_t unknown) : unknown_(unknown) {
  for (const UnigramPiece& piece : pieces) {
    trie_.add(piece.text, piece.id);
    const auto id = static_cast<std::size_t>(piece.id);
    if (scores_.size() <= id) {
      scores_.resize(id + 1);
      always_.resize(id + 1);
    }
    const auto score = static_cast<Score>(piece.score);
    scores_[id] = score;
    always_[id] = piece.always;
    if (!piece.always) lowest_ = std::min(lowest_, score);  // else it says nothing
  }
}

template <typename Score>
void Unigram<Score>::encode(std::string_view text, std::vector<UnigramStep>& path) const {
  std::vector<Best<Score>> best(text.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    Best<Score>& target = best[end];
    if (target.begin != -1 && !(score > target.score)) return;
    target = {static_cast<Score>(score), id, static_cast<std::int64_t>(begin)};
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t character = length_of(text[begin]);
    const Score so_far = best[begin].score;
    bool single = false;
    std::int32_t node = 0;
    for (std::size_t end = begin; end < text.size();) {
      node = trie_.child(node, text[end++]);
      if (node == ByteTrie::kNone) break;
      const std::int32_t id = trie_.value(node);
      if (id == ByteTrie::kNone) continue;
      const auto index = static_cast<std::size_t>(id);
      if (always_[index]) {
        offer(begin, end, static_cast<Score>(kAlwaysPerByte * static_cast<double>(end - begin - 1)) + so_far, id);
      } else {
        offer(begin, end, scores_[index] + so_far, id);
      }
      single = single || end - begin == character;
    }
    if (!single) offer(begin, begin + character, lowest_ - kUnknownPenalty + so_far, unknown_);
    begin += character;
  }
  path.clear();
  for (std::size_t end = text.size(); end > 0;) {
    const Best<Score>& last = best[end];
    path.push_back({static_cast<std::size_t>(last.begin), end, last.id});
    end = static_cast<std::size_t>(last.begin);
  }
  std::reverse(path.begin(), path.end());
}

template class Unigram<float>;
template class Unigram<double>;

}  // namespace plimsoll::formats::tokenizer
