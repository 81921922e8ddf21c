// Samples of a token source as batches: next-token prediction, or masked-token prediction for BERT.
//
//   const BatchReader reader(source, {.sequence = 256, .vocab = 50257, .seed = 1});
//   const std::int64_t valid = reader.read({cursor, 4}, {.rows = 4, .sequence = 256, .tokens = tokens, .targets = targets});
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

class BatchReader final : public BatchSource {
 public:
  // Bad input: fewer tokens than one sample, documents to mask but no way to find them, bad masking options.
  BatchReader(std::shared_ptr<const formats::TokenSource> source, const BatchReaderOptions& options);

  const Sampler& sampler() const { return sampler_; }
  std::int64_t tokens() const { return source_->size(); }
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
