// Ids in memory, as small as the vocabulary lets them be, that can be added to: what text becomes as it is read. It grows piece by piece,
// so what it takes at its largest is what it takes in the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/packed_ids.h"
#include "formats/token_source.h"

namespace plimsoll::formats {

// Of ids in [0, vocab).
IdWidth narrowest_width(std::int64_t vocab);

class PackedTokens final : public TokenSource {
 public:
  // All of one width; what is wider than that must not come.
  PackedTokens(std::string name, IdWidth width, std::vector<std::int64_t> document_starts = {})
      : name_(std::move(name)), width_(width), document_starts_(std::move(document_starts)) {}

  void append(std::span<const std::int32_t> ids);
  // A document begins with what is appended next; where one has begun and nothing followed, it is this one.
  void begin_document();
  // The last one has no tokens and is none.
  void drop_empty_document();

  std::int64_t bytes() const { return size_ * size_of(width_); }

  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  Place place_of(std::int64_t position) const override { return {name_, position}; }
  std::span<const std::int64_t> document_starts() const override { return document_starts_; }

 private:
  std::string name_;
  IdWidth width_;
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> document_starts_;
};

}  // namespace plimsoll::formats
