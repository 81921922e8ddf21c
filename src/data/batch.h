// Batches as the model reads them, in memory of whoever asks, and the interface that fills them.
#pragma once

#include <cstdint>
#include <span>

namespace plimsoll::data {

inline constexpr std::int32_t kIgnored = -1;  // a target without loss
inline constexpr std::int32_t kPadding = -1;  // the segment of a position that holds no token, the sample of an empty row

// Samples first, first + 1, ...; numbers without end, over epochs.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const SampleRange&) const = default;
};

// B rows of T positions, row-major. Spans that are empty are not wanted; the others have exactly the size shown.
struct BatchView {
  std::int64_t rows = 0;                     // B
  std::int64_t sequence = 0;                 // T
  std::span<std::int32_t> tokens;            // (B, T)
  std::span<std::int32_t> targets;           // (B, T), kIgnored where there is no loss
  std::span<std::int32_t> positions = {};    // (B, T), within the document when documents are masked
  std::span<std::int32_t> segments = {};     // (B, T), number of the document within the row; kPadding for none
  std::span<std::int32_t> token_types = {};  // (B, T), all zero
  std::span<std::int32_t> samples = {};      // (B), the sample's number (its low 31 bits); kPadding for an empty row
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills one row per sample and makes the rows after range.count empty; returns how many targets count. The
  // bytes depend on nothing but the range.
  virtual std::int64_t read(const SampleRange& range, const BatchView& batch) const = 0;
};

}  // namespace plimsoll::data
