// Batches as the model reads them, in memory of whoever asks, and the interface that fills them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace plimsoll::data {

inline constexpr std::int32_t kIgnored = -1;  // a target without loss
inline constexpr std::int32_t kPadding = -1;  // the segment of a position that holds no token, the sample of an empty row

// Samples first, first + 1, ...; numbers without end, over epochs.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const SampleRange&) const = default;
};

// One input of the model: B rows of something, row-major.
struct BatchField {
  std::string name;
  base::TensorType type;  // the first dim is B
  std::span<std::byte> bytes;

  std::int64_t row_elements() const { return type.shape.elements() / type.shape[0]; }
};

// The inputs that are wanted, as the model's graph declares them by name and type.
struct BatchView {
  std::int64_t rows = 0;  // B
  std::vector<BatchField> fields = {};

  // nullptr: it is not wanted.
  const BatchField* find(std::string_view name) const;
  // Empty where it is not wanted; stops where it is of another type.
  std::span<std::int32_t> ids(std::string_view name) const;
  std::span<float> numbers(std::string_view name) const;
  BatchView& add(std::string name, std::span<std::int32_t> ids);
  BatchView& add(std::string name, std::span<float> numbers);
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills one row per sample and makes the rows after range.count empty; returns how many targets count. The
  // bytes depend on nothing but the range. An input that the source does not have is bad input.
  virtual std::int64_t read(const SampleRange& range, const BatchView& batch) const = 0;
};

// One that says what there is of it.
class SampleSource : public BatchSource {
 public:
  virtual std::int64_t samples_per_epoch() const = 0;
  // Tokens or numbers, for people.
  virtual std::int64_t size() const = 0;
  // Joins a sample to a sum that tells data from other data.
  virtual std::uint64_t digest(std::int64_t sample, std::uint64_t sum) const = 0;
};

}  // namespace plimsoll::data
