#include "formats/tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::size_t offset_of(std::uint32_t unit) { return static_cast<std::size_t>(unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& name) {
  if (blob.empty()) return;
  std::uint32_t bytes = 0;
  if (blob.size() > sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
  if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size() - sizeof bytes) {
    base::bad_input("'{}': the rules of normalisation have {} bytes, of which the first {} should be their index", name, blob.size(),
                    bytes);
  }
  units_.resize(bytes / 4);
  std::memcpy(units_.data(), blob.data() + sizeof bytes, bytes);
  texts_ = std::string(blob.substr(sizeof bytes + bytes));
  for (std::size_t begin = 0; begin < texts_.size();) {
    const std::size_t end = std::min(texts_.find('\0', begin), texts_.size());
    if (!valid_utf8(std::string_view(texts_).substr(begin, end - begin)))
      base::bad_input("'{}': a rule of normalisation gives text that is not UTF-8", name);
    begin = end + 1;
  }
}

Charsmap::Rule Charsmap::find(std::string_view input, bool first) const {
  Rule best;
  if (units_.empty()) return best;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < input.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(input[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const std::size_t begin = value_of(units_[node]);
    if (begin > texts_.size()) break;
    // Within a character of a text a rule cannot begin: what it gives must stay UTF-8.
    if (begin < texts_.size() && (static_cast<std::uint8_t>(texts_[begin]) & 0xC0) == 0x80) break;
    best = {i + 1, std::string_view(texts_).substr(begin, std::min(texts_.find('\0', begin), texts_.size()) - begin)};
    if (first) break;
  }
  return best;
}

}  // namespace plimsoll::formats::tokenizer
