// How the samples of a step are dealt out: contiguous shares to ranks, micro-batch after micro-batch within a share.
//
// The samples of a step are [cursor, cursor + global) whatever the split, and the cursor is all that a resumed run
// needs to know.
#pragma once

#include <cstdint>
#include <functional>

#include "data/batch.h"

namespace plimsoll::data {

struct BatchShare {
  std::int64_t global = 0;  // samples per step, over all ranks
  std::int64_t micro = 0;   // samples per micro-batch of one rank
  std::int64_t ranks = 1;   // that split the batch (the data axis)
  std::int64_t rank = 0;

  std::int64_t micro_batches() const { return global / (ranks * micro); }  // per rank
};

SampleRange range_of(const BatchShare& share, std::int64_t cursor, std::int64_t micro_batch);

// From one micro-batch of a rank to its next, over steps that begin at `origin`; for reading ahead.
std::function<SampleRange(const SampleRange&)> reading_order(const BatchShare& share, std::int64_t origin);

}  // namespace plimsoll::data
