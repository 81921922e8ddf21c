#include "train/session/number_rows.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::train {

namespace {

std::vector<std::int32_t> all_ids(std::span<const std::span<std::int32_t>> tokens, collectives::Group* group) {
  std::vector<std::int32_t> own;
  for (const std::span<std::int32_t>& batch : tokens) own.insert(own.end(), batch.begin(), batch.end());
  if (group == nullptr) return own;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group->size()), std::ssize(own));
  std::vector<std::int32_t> all(own.size() * counts.size());
  group->all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), counts, base::DType::i32);
  return all;
}

}  // namespace

void number_rows(std::span<const std::span<std::int32_t>> tokens, std::span<std::int32_t> rows, collectives::Group* group) {
  std::vector<std::int32_t> ids = all_ids(tokens, group);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (!ids.empty() && ids.front() < 0) base::bad_input("found token {}, expected a row of the token table", ids.front());
  PLIMSOLL_CHECK(ids.size() <= rows.size(), "{} rows for room for {}", ids.size(), rows.size());
  std::fill(std::copy(ids.begin(), ids.end(), rows.begin()), rows.end(), -1);
  for (const std::span<std::int32_t>& batch : tokens) {
    for (std::int32_t& token : batch) token = static_cast<std::int32_t>(std::lower_bound(ids.begin(), ids.end(), token) - ids.begin());
  }
}

}  // namespace plimsoll::train
