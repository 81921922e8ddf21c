#include "data/part_encoder.h"

#include <algorithm>

namespace plimsoll::data {

namespace {

constexpr std::size_t kContext = 256;  // bytes: longer than anything that tokens join

// The last characters of `text`.
std::string_view end_of(std::string_view text) {
  if (text.size() <= kContext) return text;
  std::size_t begin = text.size() - kContext;
  while (begin < text.size() && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80) ++begin;
  return text.substr(begin);
}

}  // namespace

void PartEncoder::encode(const TextPart& part, std::vector<std::int32_t>& ids) {
  bool alone = before_.empty() || part.text.empty();
  if (!alone) {
    const std::vector<std::int32_t> context = tokenizer_.encode(before_);
    const std::vector<std::int32_t> joined = tokenizer_.encode(before_.append(part.text));
    // Where a token reaches over the cut, the context is no beginning of the whole; then nothing better is known.
    alone = context.size() > joined.size() || !std::equal(context.begin(), context.end(), joined.begin());
    if (!alone) ids.insert(ids.end(), joined.begin() + std::ssize(context), joined.end());
  }
  if (alone) tokenizer_.encode(part.text, ids);
  if (part.ends_document) {
    before_.clear();
  } else if (!part.text.empty() && !tokenizer_.cuts_at_spaces()) {
    before_ = end_of(part.text);
  }
}

}  // namespace plimsoll::data
