#include "data/documents.h"

#include <algorithm>

namespace plimsoll::data {

void find_document_starts(const formats::TokenSource& source, std::int64_t begin, std::span<const std::int32_t> ids,
                          const DocumentOptions& options, std::span<std::uint8_t> starts) {
  std::fill(starts.begin(), starts.end(), std::uint8_t{0});
  if (options.end_token) {
    for (std::size_t i = 1; i < ids.size(); ++i) starts[i] = ids[i - 1] == *options.end_token ? 1 : 0;
  }
  const std::span<const std::int64_t> known = source.document_starts();
  const std::int64_t end = begin + std::ssize(ids);
  for (auto start = std::upper_bound(known.begin(), known.end(), begin); start != known.end() && *start < end; ++start) {
    starts[static_cast<std::size_t>(*start - begin)] = 1;
  }
}

}  // namespace plimsoll::data
