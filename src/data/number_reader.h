// Rows of a table of numbers as batches: "features" are the first columns, "targets" those behind them.
//
// Targets are f32 as they stand, or, where the model declares ids, the class that one column names. Like the reader of tokens it keeps no
// state between calls, and shuffles by (seed, epoch).
#pragma once

#include <cstdint>
#include <memory>

#include "data/batch.h"
#include "data/sampler.h"
#include "formats/number_table.h"

namespace plimsoll::data {

struct NumberReaderOptions {
  std::uint64_t seed = 1;
  bool shuffle = true;
  std::int64_t targets = 1;  // columns at the end that are to be predicted
  std::int64_t classes = 0;  // the one target is one of so many; 0: targets are numbers
};

class NumberReader final : public SampleSource {
 public:
  // Bad input: a class that is not one, with its row.
  NumberReader(formats::NumberTable table, const NumberReaderOptions& options);

  std::int64_t samples_per_epoch() const override { return sampler_.samples_per_epoch(); }
  std::int64_t size() const override { return std::ssize(table_.values); }
  std::uint64_t digest(std::int64_t sample, std::uint64_t sum) const override;
  // Bad input: inputs of other names, widths that are not those of the table, and, where targets are numbers, fewer samples than rows: a
  // row without a target would count.
  std::int64_t read(const SampleRange& range, const BatchView& batch) const override;

 private:
  void check(const SampleRange& range, const BatchView& batch) const;
  std::span<const float> row_of(std::int64_t sample) const { return table_.row(sampler_.window(sample).begin); }

  formats::NumberTable table_;
  NumberReaderOptions options_;
  Sampler sampler_;
};

}  // namespace plimsoll::data
