// Samples of a token source as batches: next-token prediction, or masked-token prediction for BERT.
//
//   const BatchReader reader(source, {.sequence = 256, .vocab = 50257, .seed = 1});
//   const std::int64_t valid = reader.read({cursor, 4}, BatchView{.rows = 4}.add("tokens", tokens).add("targets", targets));
//
// It has tokens, targets (kIgnored where there is no loss), positions (within the document when documents are masked), segments (the
// number of the document within the row, kPadding for none) and token_types (all zero), each (B, T), and samples (B): the sample's number
// (its low 31 bits), kPadding for an empty row.
//
// It keeps no state between calls: reading the same samples again, in other groups, on another rank or after a
// restart gives the same bytes, and several threads may read at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch.h"
#include "data/documents.h"
#include "data/masked_language.h"
#include "data/sampler.h"
#include "formats/token_source.h"

namespace plimsoll::data {

struct BatchReaderOptions {
  std::int64_t sequence = 0;
  std::int64_t vocab = 0;  // ids outside it are refused as they are read
  std::uint64_t seed = 1;
  bool shuffle = true;
  bool include_tail = false;  // the last, short sample of an epoch too, padded; for evaluation
  std::int32_t padding_id = 0;
  std::optional<DocumentOptions> documents = {};     // mask them; without it a row is one document
  std::optional<MaskedLanguageOptions> masked = {};  // BERT; without it the target is the next token
};

class BatchReader final : public SampleSource {
 public:
  // Bad input: fewer tokens than one sample, documents to mask but no way to find them, bad masking options.
  BatchReader(std::shared_ptr<const formats::TokenSource> source, const BatchReaderOptions& options);

  const Sampler& sampler() const { return sampler_; }
  std::int64_t samples_per_epoch() const override { return sampler_.samples_per_epoch(); }
  std::int64_t size() const override { return source_->size(); }
  std::uint64_t digest(std::int64_t sample, std::uint64_t sum) const override;
  std::int64_t read(const SampleRange& range, const BatchView& batch) const override;

 private:
  // One row of a batch; optional spans may be empty.
  struct Row {
    std::span<std::int32_t> tokens, targets, positions, segments;
  };
  // Memory that read() makes once and every row uses.
  struct Scratch {
    std::vector<std::int32_t> ids;              // the window and the token after it
    std::vector<std::uint8_t> starts;           // 1 where a document begins
    std::vector<std::int32_t> tokens, targets;  // of a row, where the batch has no place for them
  };

  std::int64_t fill(std::int64_t sample, const Row& row, Scratch& scratch) const;
  std::int64_t predict_next(std::int64_t length, const Row& row, const Scratch& scratch) const;
  std::int64_t predict_masked(std::int64_t sample, std::int64_t length, const Row& row, const Scratch& scratch) const;
  void number_positions(std::int64_t filled, std::int64_t before, const Row& row, const Scratch& scratch) const;
  void clear(const Row& row) const;

  std::shared_ptr<const formats::TokenSource> source_;
  BatchReaderOptions options_;
  std::optional<MaskedLanguage> masked_;
  Sampler sampler_;
};

}  // namespace plimsoll::data
