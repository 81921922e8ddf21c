#include "data/number_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace plimsoll::data {

namespace {

constexpr std::string_view kFeatures = "features", kTargets = "targets", kNumbers = "samples";

// A row is a window of one, and a sampler of tokens has one more of those.
SamplerOptions rows_of(const formats::NumberTable& table, const NumberReaderOptions& options) {
  return {.name = table.name, .tokens = table.rows() + 1, .stride = 1, .seed = options.seed, .shuffle = options.shuffle};
}

}  // namespace

NumberReader::NumberReader(formats::NumberTable table, const NumberReaderOptions& options)
    : table_(std::move(table)), options_(options), sampler_(rows_of(table_, options)) {
  if (options_.targets < 1 || options_.targets >= table_.columns || (options_.classes > 0 && options_.targets != 1))
    base::bad_input("{}: found {} columns, expected features and {} behind them", table_.name, table_.columns,
                    options_.targets == 1 ? "a target" : fmt::format("{} targets", options_.targets));
  for (std::int64_t row = 0; options_.classes > 0 && row < table_.rows(); ++row) {
    const float label = table_.row(row).back();
    if (label == std::floor(label) && label >= 0.0f && label < static_cast<float>(options_.classes)) continue;
    base::bad_input("{}: row {} has {} in its last column, expected a class from 0 to {}", table_.name, row + 1, label,
                    options_.classes - 1);
  }
}

std::uint64_t NumberReader::digest(std::int64_t sample, std::uint64_t sum) const {
  for (const float value : row_of(sample)) sum = (sum ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001B3u;
  return sum;
}

void NumberReader::check(const SampleRange& range, const BatchView& batch) const {
  PLIMSOLL_CHECK(range.first >= 0 && range.count >= 0 && range.count <= batch.rows, "{} samples into {} rows", range.count, batch.rows);
  const bool classes = options_.classes > 0;
  for (const BatchField& field : batch.fields) {
    const bool features = field.name == kFeatures;
    const bool targets = field.name == kTargets;
    const base::DType dtype = features || (targets && !classes) ? base::DType::f32 : base::DType::i32;
    if ((!features && !targets && field.name != kNumbers) || field.type.dtype != dtype) {
      base::bad_input("the model reads \"{}\", {}, which a table of numbers{} does not have; expected features, targets and samples",
                      field.name, base::to_string(field.type), classes ? " with classes" : "");
    }
    const std::int64_t there = features ? table_.columns - options_.targets : options_.targets;
    if ((features || targets) && field.row_elements() != there) {
      base::bad_input("{}: a row has {} numbers, of which {} are {}, but the model reads {} of them", table_.name, table_.columns, there,
                      field.name, field.row_elements());
    }
  }
  if (!classes && range.count < batch.rows) {
    base::bad_input("{}: found {} rows for a micro-batch of {}, expected all of them: use a \"batch.micro\" that divides the {} rows",
                    table_.name, range.count, batch.rows, table_.rows());
  }
}

std::int64_t NumberReader::read(const SampleRange& range, const BatchView& batch) const {
  check(range, batch);
  const auto behind = static_cast<std::size_t>(options_.targets);
  const auto width = static_cast<std::size_t>(table_.columns) - behind;
  const std::span<std::int32_t> samples = batch.ids(kNumbers);
  const std::span<float> features = batch.numbers(kFeatures);
  const bool targets = batch.find(kTargets) != nullptr;
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch.rows); ++row) {
    const bool filled = static_cast<std::int64_t>(row) < range.count;
    const std::int64_t sample = range.first + static_cast<std::int64_t>(row);
    const std::span<const float> values = filled ? row_of(sample) : std::span<const float>();
    if (!samples.empty()) samples[row] = filled ? static_cast<std::int32_t>(sample & 0x7FFFFFFF) : kPadding;
    for (std::size_t at = 0; at < width && !features.empty(); ++at) features[row * width + at] = filled ? values[at] : 0.0f;
    if (!targets) continue;
    if (options_.classes > 0) {
      batch.ids(kTargets)[row] = filled ? static_cast<std::int32_t>(values.back()) : kIgnored;
    } else {
      std::ranges::copy(values.last(behind), batch.numbers(kTargets).begin() + static_cast<std::ptrdiff_t>(row * behind));
    }
  }
  return range.count * options_.targets;
}

}  // namespace plimsoll::data
