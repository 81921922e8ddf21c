// Whole weights, some rows at a time, to the buffers that hold parts of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/session/buffers.h"

namespace plimsoll::train {

// Calls stage(first row, items to fill) for rows of `width` items of a whole tensor, and put(number of the buffer, first item in it, items)
// for all of them that the buffers hold. Items are what the buffers' parts count: elements, or the bytes of a stored form.
template <typename Item, typename Stage, typename Put>
void write_in_pieces(const Buffers& buffers, const std::vector<std::string>& holding, const Stage& stage, const Put& put) {
  constexpr std::int64_t kStaged = std::int64_t{1} << 22;  // items in memory on their way to a buffer
  // A stretch of items that lie together in the tensor and in a buffer that holds part of it.
  struct Stretch {
    std::size_t buffer;  // of those that hold it
    std::int64_t whole, held, count;
  };
  if (holding.empty()) return;
  std::vector<Stretch> stretches;
  for (std::size_t buffer = 0; buffer < holding.size(); ++buffer) {
    ops::for_each_run(buffers.part(holding[buffer]), buffers.data_place(), [&](std::int64_t whole, std::int64_t held, std::int64_t count) {
      stretches.push_back({buffer, whole, held, count});
    });
  }
  const base::Shape shape = buffers.part(holding[0]).whole;
  const std::int64_t rows = shape[0], width = shape.elements() / std::max<std::int64_t>(1, rows);
  const std::int64_t piece = std::max<std::int64_t>(1, kStaged / std::max<std::int64_t>(1, width));
  std::vector<Item> staged;
  for (std::int64_t row = 0; row < rows; row += piece) {
    const std::int64_t first = row * width, end = std::min(rows, row + piece) * width;
    bool filled = false;
    for (const Stretch& stretch : stretches) {
      const std::int64_t begin = std::max(first, stretch.whole), count = std::min(end, stretch.whole + stretch.count) - begin;
      if (count <= 0) continue;
      if (!filled) {
        staged.resize(static_cast<std::size_t>(end - first));
        stage(row, std::span<Item>(staged));
        filled = true;
      }
      put(stretch.buffer, stretch.held + begin - stretch.whole,
          std::span<const Item>(staged).subspan(static_cast<std::size_t>(begin - first), static_cast<std::size_t>(count)));
    }
  }
}

// The same of a weight that is stored in a form: fill(first row, elements to fill) gives what it is to hold.
template <typename Fill>
void write_stored(const Buffers& buffers, const std::vector<std::string>& holding, const graph::Stored& stored, const Fill& fill) {
  const std::int64_t columns = stored.decoded.shape[-1];
  const std::int64_t width = stored.form->bytes(columns);
  std::vector<float> values;
  const auto encode = [&](std::int64_t row, std::span<std::uint8_t> records) {
    values.resize(records.size() / static_cast<std::size_t>(width) * static_cast<std::size_t>(columns));
    fill(row, std::span<float>(values));
    ops::encode_rows(*stored.form, columns, values, records);
  };
  write_in_pieces<std::uint8_t>(buffers, holding, encode, [&](std::size_t buffer, std::int64_t first, std::span<const std::uint8_t> bytes) {
    buffers.write(holding[buffer], first, std::as_bytes(bytes));
  });
}

}  // namespace plimsoll::train
