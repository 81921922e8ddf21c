#include "data/batch_reader.h"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::data {

namespace {

Sampler make_sampler(const formats::TokenSource& source, const BatchReaderOptions& options) {
  const std::int64_t frame = options.masked ? options.masked->frame() : 0;
  if (options.sequence <= frame)
    base::bad_input("a sequence of {} tokens was asked for; expected at least {}", options.sequence, frame + 1);
  return Sampler({.name = source.size() > 0 ? fmt::format("'{}'", source.place_of(0).file) : "the data",
                  .tokens = source.size(),
                  .stride = options.sequence - frame,
                  .seed = options.seed,
                  .shuffle = options.shuffle,
                  .include_tail = options.include_tail});
}

void check_view(const SampleRange& range, const BatchView& batch, std::int64_t sequence) {
  PLIMSOLL_CHECK(range.first >= 0 && range.count >= 0 && range.count <= batch.rows, "{} samples into {} rows", range.count, batch.rows);
  constexpr std::string_view kOfPositions[] = {"tokens", "targets", "positions", "segments", "token_types"};
  for (const BatchField& field : batch.fields) {
    const bool positions = std::ranges::find(kOfPositions, field.name) != std::end(kOfPositions);
    if (!positions && field.name != "samples") {
      base::bad_input("the model reads \"{}\", {}, which text does not have; expected some of {} and samples", field.name,
                      base::to_string(field.type), fmt::join(kOfPositions, ", "));
    }
    const std::size_t elements = static_cast<std::size_t>(positions ? batch.rows * sequence : batch.rows);
    PLIMSOLL_CHECK(batch.ids(field.name).size() == elements, "{} is {}, expected {} ids", field.name, base::to_string(field.type),
                   elements);
  }
}

}  // namespace

BatchReader::BatchReader(std::shared_ptr<const formats::TokenSource> source, const BatchReaderOptions& options)
    : source_(std::move(source)), options_(options), sampler_(make_sampler(*source_, options)) {
  PLIMSOLL_CHECK(options_.vocab > 0, "vocabulary of {}", options_.vocab);
  if (options_.masked) masked_.emplace(*options_.masked, options_.vocab, options_.seed);
  if (options_.documents && !options_.documents->end_token && source_->document_starts().empty()) {
    base::bad_input("documents are to be kept apart, but '{}' does not say where they end; name the token that ends a document",
                    source_->place_of(0).file);
  }
}

std::int64_t BatchReader::read(const SampleRange& range, const BatchView& batch) const {
  check_view(range, batch, options_.sequence);
  Scratch scratch;
  scratch.ids.resize(static_cast<std::size_t>(options_.sequence) + 1);
  scratch.starts.resize(scratch.ids.size());
  const std::span<std::int32_t> tokens = batch.ids("tokens"), targets = batch.ids("targets"), positions = batch.ids("positions"),
                                segments = batch.ids("segments"), types = batch.ids("token_types"), samples = batch.ids("samples");
  // Which targets count is known only when both have been made, so what nobody wants is made here.
  if (tokens.empty()) scratch.tokens.resize(static_cast<std::size_t>(options_.sequence));
  if (targets.empty()) scratch.targets.resize(static_cast<std::size_t>(options_.sequence));
  std::int64_t valid = 0;
  for (std::int64_t r = 0; r < batch.rows; ++r) {
    const auto part = [&](std::span<std::int32_t> all) {
      return all.empty() ? all : all.subspan(static_cast<std::size_t>(r * options_.sequence), static_cast<std::size_t>(options_.sequence));
    };
    const Row row{tokens.empty() ? std::span(scratch.tokens) : part(tokens), targets.empty() ? std::span(scratch.targets) : part(targets),
                  part(positions), part(segments)};
    const bool filled = r < range.count;
    if (filled) {
      valid += fill(range.first + r, row, scratch);
    } else {
      clear(row);
    }
    if (!samples.empty())
      samples[static_cast<std::size_t>(r)] = filled ? static_cast<std::int32_t>((range.first + r) & 0x7FFFFFFF) : kPadding;
  }
  std::fill(types.begin(), types.end(), 0);
  return valid;
}

std::uint64_t BatchReader::digest(std::int64_t sample, std::uint64_t sum) const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options_.sequence));
  read({sample, 1}, BatchView{.rows = 1}.add("tokens", tokens));
  for (const std::int32_t token : tokens) sum = (sum ^ static_cast<std::uint32_t>(token)) * 0x100000001B3u;
  return sum;
}

void BatchReader::clear(const Row& row) const {
  std::fill(row.tokens.begin(), row.tokens.end(), options_.padding_id);
  std::fill(row.targets.begin(), row.targets.end(), kIgnored);
  std::fill(row.segments.begin(), row.segments.end(), kPadding);
  // Within the position table all the same: lookups of padding must stay legal.
  for (std::size_t t = 0; t < row.positions.size(); ++t) row.positions[t] = static_cast<std::int32_t>(t);
}

std::int64_t BatchReader::fill(std::int64_t sample, const Row& row, Scratch& scratch) const {
  const Window window = sampler_.window(sample);
  const auto ids = std::span(scratch.ids).first(static_cast<std::size_t>(window.length) + 1);
  source_->read(window.begin, ids);
  formats::check_ids(*source_, window.begin, ids, options_.vocab);
  const auto starts = std::span(scratch.starts).first(ids.size());
  std::fill(starts.begin(), starts.end(), std::uint8_t{0});
  if (options_.documents) find_document_starts(*source_, window.begin, ids, *options_.documents, starts);
  clear(row);
  return masked_ ? predict_masked(sample, window.length, row, scratch) : predict_next(window.length, row, scratch);
}

std::int64_t BatchReader::predict_next(std::int64_t length, const Row& row, const Scratch& scratch) const {
  std::int64_t valid = 0;
  const bool keep_crossing = !options_.documents || options_.documents->keep_crossing_targets;
  for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t) {
    row.tokens[t] = scratch.ids[t];
    const bool counts = keep_crossing || scratch.starts[t + 1] == 0;
    row.targets[t] = counts ? scratch.ids[t + 1] : kIgnored;
    valid += counts ? 1 : 0;
  }
  number_positions(length, 0, row, scratch);
  return valid;
}

std::int64_t BatchReader::predict_masked(std::int64_t sample, std::int64_t length, const Row& row, const Scratch& scratch) const {
  const MaskedLanguageOptions& options = masked_->options();
  const std::size_t before = options.first_token ? 1 : 0;
  const auto count = static_cast<std::size_t>(length);
  if (options.first_token) row.tokens[0] = *options.first_token;
  std::copy_n(scratch.ids.begin(), count, row.tokens.begin() + static_cast<std::ptrdiff_t>(before));
  if (options.last_token) row.tokens[before + count] = *options.last_token;
  number_positions(length + options.frame(), static_cast<std::int64_t>(before), row, scratch);
  return masked_->apply(sample, static_cast<std::int64_t>(before), row.tokens.subspan(before, count), row.targets.subspan(before, count));
}

// `filled` positions hold tokens, of which the first `before` and any after the window were put there by the frame and
// belong to the first and last document.
void BatchReader::number_positions(std::int64_t filled, std::int64_t before, const Row& row, const Scratch& scratch) const {
  std::int32_t position = 0;
  std::int32_t segment = 0;
  const std::int64_t length = options_.masked ? filled - options_.masked->frame() : filled;
  for (std::int64_t t = 0; t < filled; ++t) {
    const std::int64_t in_window = t - before;
    if (in_window > 0 && in_window < length && scratch.starts[static_cast<std::size_t>(in_window)] != 0) {
      position = 0;
      ++segment;
    }
    if (!row.positions.empty()) row.positions[static_cast<std::size_t>(t)] = position;
    if (!row.segments.empty()) row.segments[static_cast<std::size_t>(t)] = segment;
    ++position;
  }
}

}  // namespace plimsoll::data
