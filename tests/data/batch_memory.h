// Memory for one batch, filled with nonsense so that a value that was not written shows.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/batch.h"
#include "formats/token_source.h"
#include "support/refusal.h"

namespace plimsoll::data {

struct BatchMemory {
  BatchMemory(std::int64_t batch_rows, std::int64_t batch_sequence) : rows(batch_rows), sequence(batch_sequence) {
    const auto elements = static_cast<std::size_t>(rows * sequence);
    for (auto* part : {&tokens, &targets, &positions, &segments, &token_types}) part->assign(elements, -99);
    samples.assign(static_cast<std::size_t>(rows), -99);
  }
  BatchView view() {
    BatchView view{.rows = rows};
    view.add("tokens", tokens).add("targets", targets).add("positions", positions).add("segments", segments);
    view.add("token_types", token_types);
    view.fields.push_back({"samples", {base::DType::i32, base::Shape{rows}}, std::as_writable_bytes(std::span(samples))});
    return view;
  }
  // Adds the rows of another batch below these.
  void append(const BatchMemory& other) {
    rows += other.rows;
    valid += other.valid;
    const auto join = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    join(tokens, other.tokens);
    join(targets, other.targets);
    join(positions, other.positions);
    join(segments, other.segments);
    join(token_types, other.token_types);
    join(samples, other.samples);
  }
  bool operator==(const BatchMemory&) const = default;

  std::int64_t rows;
  std::int64_t sequence;
  std::int64_t valid = 0;
  std::vector<std::int32_t> tokens, targets, positions, segments, token_types, samples;
};

inline BatchMemory read_batch(const BatchSource& source, const SampleRange& range, std::int64_t sequence, std::int64_t rows = 0) {
  BatchMemory memory(rows > 0 ? rows : range.count, sequence);
  memory.valid = source.read(range, memory.view());
  return memory;
}

// 0, 1, 2, ...: each token tells where it came from.
inline std::shared_ptr<const formats::TokenSource> counting_tokens(std::int64_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return formats::tokens_in_memory("counting", std::move(ids));
}

using tests::refusal;

}  // namespace plimsoll::data
