#include "formats/packed_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::formats {

namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // ids

template <typename T>
void narrow_as(std::span<const std::int32_t> ids, std::byte* to) {
  for (const std::int32_t id : ids) {
    const T narrow = static_cast<T>(id);
    PLIMSOLL_CHECK(static_cast<std::int32_t>(narrow) == id, "token id {} is wider than {} bytes", id, sizeof(T));
    std::memcpy(to, &narrow, sizeof narrow);
    to += sizeof narrow;
  }
}

void narrow(IdWidth width, std::span<const std::int32_t> ids, std::byte* to) {
  switch (width) {
    case IdWidth::u8: return narrow_as<std::uint8_t>(ids, to);
    case IdWidth::u16: return narrow_as<std::uint16_t>(ids, to);
    default: return narrow_as<std::int32_t>(ids, to);
  }
}

}  // namespace

IdWidth narrowest_width(std::int64_t vocab) {
  if (vocab <= std::int64_t{1} << 8) return IdWidth::u8;
  return vocab <= std::int64_t{1} << 16 ? IdWidth::u16 : IdWidth::i32;
}

void PackedTokens::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    const std::int64_t at = size_ % kPiece;
    if (at == 0) pieces_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(kPiece * size_of(width_))));
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(ids), kPiece - at));
    narrow(width_, ids.first(count), pieces_.back().get() + at * size_of(width_));
    size_ += static_cast<std::int64_t>(count);
    ids = ids.subspan(count);
  }
}

void PackedTokens::begin_document() {
  if (document_starts_.empty() || document_starts_.back() != size_) document_starts_.push_back(size_);
}

void PackedTokens::drop_empty_document() {
  if (!document_starts_.empty() && document_starts_.back() == size_) document_starts_.pop_back();
}

void PackedTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  PLIMSOLL_CHECK(begin >= 0 && begin + std::ssize(out) <= size_, "tokens {}+{} of {}", begin, out.size(), size_);
  while (!out.empty()) {
    const std::int64_t at = begin % kPiece;
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(out), kPiece - at));
    widen(width_, pieces_[static_cast<std::size_t>(begin / kPiece)].get() + at * size_of(width_), out.first(count));
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

}  // namespace plimsoll::formats
