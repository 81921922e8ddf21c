#include "formats/token_source.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/packed_tokens.h"

namespace plimsoll::formats {

namespace {

class ConcatenatedTokens final : public TokenSource {
 public:
  explicit ConcatenatedTokens(std::vector<std::unique_ptr<TokenSource>> parts) : parts_(std::move(parts)) {
    bool documents_known = true;
    for (const auto& part : parts_) {
      documents_known = documents_known && !part->document_starts().empty();
      for (const std::int64_t start : part->document_starts()) document_starts_.push_back(begins_.back() + start);
      begins_.push_back(begins_.back() + part->size());
    }
    if (!documents_known) document_starts_.clear();
  }

  std::int64_t size() const override { return begins_.back(); }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    PLIMSOLL_CHECK(begin >= 0 && begin + std::ssize(out) <= size(), "tokens {}+{} of {}", begin, out.size(), size());
    for (std::size_t part = out.empty() ? 0 : part_of(begin); !out.empty(); ++part) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(out), begins_[part + 1] - begin);
      parts_[part]->read(begin - begins_[part], out.first(static_cast<std::size_t>(count)));
      out = out.subspan(static_cast<std::size_t>(count));
      begin += count;
    }
  }

  Place place_of(std::int64_t position) const override {
    const std::size_t part = part_of(position);
    return parts_[part]->place_of(position - begins_[part]);
  }

  std::span<const std::int64_t> document_starts() const override { return document_starts_; }

 private:
  std::size_t part_of(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end() - 1, position) - begins_.begin()) - 1;
  }

  std::vector<std::unique_ptr<TokenSource>> parts_;
  std::vector<std::int64_t> begins_{0};  // of each part, and the end
  std::vector<std::int64_t> document_starts_;
};

}  // namespace

std::unique_ptr<TokenSource> tokens_in_memory(std::string name, const std::vector<std::int32_t>& ids,
                                              std::vector<std::int64_t> document_starts) {
  auto tokens = std::make_unique<PackedTokens>(std::move(name), IdWidth::i32, std::move(document_starts));
  tokens->append(ids);
  return tokens;
}

std::unique_ptr<TokenSource> concatenate(std::vector<std::unique_ptr<TokenSource>> parts) {
  PLIMSOLL_CHECK(!parts.empty(), "nothing to concatenate");
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<ConcatenatedTokens>(std::move(parts));
}

void check_ids(const TokenSource& source, std::int64_t begin, std::span<const std::int32_t> ids, std::int64_t vocab) {
  // As unsigned numbers negative ids are large, so that one comparison finds both kinds.
  std::uint32_t largest = 0;
  for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
  if (static_cast<std::int64_t>(largest) < vocab) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab) continue;
    const TokenSource::Place place = source.place_of(begin + static_cast<std::int64_t>(i));
    base::bad_input(
        "'{}' has token id {} at position {}, but the model's vocabulary has {} ids (0 to {}); the data was made for another "
        "vocabulary, or its ids have another width",
        place.file, ids[i], place.position, vocab, vocab - 1);
  }
}

std::int32_t check_all_ids(const TokenSource& source, std::int64_t vocab) {
  std::vector<std::int32_t> chunk(1 << 16);
  std::int32_t largest = 0;
  for (std::int64_t begin = 0; begin < source.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(chunk), source.size() - begin));
    const std::span<std::int32_t> ids = std::span(chunk).first(count);
    source.read(begin, ids);
    check_ids(source, begin, ids, vocab);
    largest = std::max(largest, *std::max_element(ids.begin(), ids.end()));
    begin += static_cast<std::int64_t>(count);
  }
  return largest;
}

}  // namespace plimsoll::formats
