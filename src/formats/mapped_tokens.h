// Tokens in a mapped file, as one or more runs of equal-width ids: the source behind every token file format.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/packed_ids.h"
#include "formats/token_source.h"
#include "io/file_system.h"

namespace plimsoll::formats {

// Tokens [first, next run's first) lie one behind the other from byte `offset` of the file on.
struct TokenRun {
  std::int64_t first = 0;
  std::int64_t offset = 0;
};

struct TokenLayout {
  std::string file;
  IdWidth width = IdWidth::u16;
  std::int64_t tokens = 0;
  std::vector<TokenRun> runs;  // ascending, from token 0; checked against the file's size by the maker
  std::vector<std::int64_t> document_starts = {};
};

class MappedTokens final : public TokenSource {
 public:
  MappedTokens(io::Mapping mapping, TokenLayout layout) : mapping_(std::move(mapping)), layout_(std::move(layout)) {}

  std::int64_t size() const override { return layout_.tokens; }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    PLIMSOLL_CHECK(begin >= 0 && begin + std::ssize(out) <= size(), "tokens {}+{} of {}", begin, out.size(), size());
    mapping_.check_size();
    const auto after = [](std::int64_t position, const TokenRun& run) { return position < run.first; };
    auto run = std::upper_bound(layout_.runs.begin(), layout_.runs.end(), begin, after);
    while (!out.empty()) {
      const std::int64_t end = run == layout_.runs.end() ? size() : run->first;
      const TokenRun& current = *(run - 1);
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(out), end - begin));
      const std::int64_t offset = current.offset + (begin - current.first) * size_of(layout_.width);
      const std::span<const std::byte> stored =
          mapping_.bytes().subspan(static_cast<std::size_t>(offset), count * static_cast<std::size_t>(size_of(layout_.width)));
      const auto bad = widen(layout_.width, stored.data(), out.first(count));
      mapping_.let_go(stored);
      if (bad) base::bad_input("'{}' has at position {} a token id beyond 31 bits", layout_.file, begin + static_cast<std::int64_t>(*bad));
      begin += static_cast<std::int64_t>(count);
      out = out.subspan(count);
      ++run;
    }
  }

  Place place_of(std::int64_t position) const override { return {layout_.file, position}; }
  std::span<const std::int64_t> document_starts() const override { return layout_.document_starts; }

 private:
  io::Mapping mapping_;
  TokenLayout layout_;
};

}  // namespace plimsoll::formats
