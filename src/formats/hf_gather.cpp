#include "formats/hf_gather.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"

namespace plimsoll::formats {

namespace {

// Rows of a transposed tensor read at once: one cache line of our row for each of their columns.
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTilePadding = 16;  // floats, so that a column of a tile does not fall on one set of the cache
constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

std::span<float> part_of(std::span<float> all, std::int64_t first, std::int64_t count) {
  return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

void copy_run(const TensorView& view, std::int64_t first, std::span<float> out) {
  const std::int64_t threads = base::threads_for_bytes(std::ssize(out) * static_cast<std::int64_t>(sizeof(float)));
  base::in_parallel(threads, [&](std::int64_t thread) {
    const std::int64_t begin = std::ssize(out) * thread / threads;
    const std::int64_t end = std::ssize(out) * (thread + 1) / threads;
    read_f32(view, first + begin, part_of(out, begin, end - begin));
  });
}

// The runs' share in our rows [first, first + count), counted from there.
std::vector<RowRun> within(const std::vector<RowRun>& runs, std::int64_t first, std::int64_t count) {
  std::vector<RowRun> clipped;
  for (const RowRun& run : runs) {
    const auto before = [&](std::int64_t row) {
      return std::clamp<std::int64_t>((row - run.ours + run.step - 1) / run.step, 0, run.count);
    };
    const std::int64_t begin = run.ours >= first ? 0 : before(first);
    const std::int64_t end = run.ours >= first + count ? 0 : before(first + count);
    if (begin < end) clipped.push_back({run.ours + begin * run.step - first, run.theirs + begin, end - begin, run.step});
  }
  return clipped;
}

// Rows that lie apart in ours. Many of theirs are asked for at once: to ask the system for each row takes longer than to copy it.
void spread_run(const RowRun& run, const TensorView& view, std::int64_t width, std::span<float> out) {
  const std::int64_t threads = base::threads_for_bytes(run.count * width * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t together = std::max<std::int64_t>(1, kChunkElements / width);
  base::in_parallel(threads, [&](std::int64_t thread) {
    const std::int64_t end = run.count * (thread + 1) / threads;
    ElementReader reader(view);
    for (std::int64_t first = run.count * thread / threads; first < end; first += together) {
      const std::int64_t rows = std::min(together, end - first);
      const std::span<const std::byte> bytes = reader.read((run.theirs + first) * width, rows * width);
      for (std::int64_t row = 0; row < rows; ++row) {
        read_f32(view.dtype, bytes, row * width, part_of(out, (run.ours + (first + row) * run.step) * width, width));
      }
    }
  });
}

void gather_straight(const std::vector<RowRun>& runs, const TensorView& view, std::int64_t width, std::span<float> out) {
  for (const RowRun& run : runs) {
    if (run.step == 1) {
      copy_run(view, run.theirs * width, part_of(out, run.ours * width, run.count * width));
    } else {
      spread_run(run, view, width, out);
    }
  }
}

// Their rows [begin, end), which are our columns.
void transpose_rows(const std::vector<RowRun>& runs, const TensorView& view, std::int64_t width, std::int64_t begin, std::int64_t end,
                    std::span<float> out) {
  const std::int64_t columns = view.shape[1];  // theirs: (width, columns)
  std::int64_t low = columns, high = 0;        // the ones that are asked for
  for (const RowRun& run : runs) {
    low = std::min(low, run.theirs);
    high = std::max(high, run.theirs + run.count);
  }
  const std::int64_t stride = high - low + kTilePadding;
  std::vector<float> tile(static_cast<std::size_t>(kTileRows * stride));
  ElementReader reader(view);
  for (std::int64_t first = begin; first < end; first += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, end - first);
    const std::span<const std::byte> bytes = reader.read(first * columns + low, (rows - 1) * columns + high - low);
    for (std::int64_t row = 0; row < rows; ++row) {
      read_f32(view.dtype, bytes, row * columns, part_of(tile, row * stride, high - low));
    }
    for (const RowRun& run : runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        float* const to = out.data() + (run.ours + i * run.step) * width + first;
        const float* const from = tile.data() + run.theirs - low + i;
        for (std::int64_t row = 0; row < rows; ++row) to[row] = from[row * stride];
      }
    }
  }
}

void gather_transposed(const std::vector<RowRun>& runs, const TensorView& view, std::int64_t width, std::span<float> out) {
  const std::int64_t threads = base::threads_for_bytes(16 * std::ssize(out));  // transposing is slower than copying
  const std::int64_t tiles = (width + kTileRows - 1) / kTileRows;
  base::in_parallel(threads, [&](std::int64_t thread) {
    const std::int64_t begin = tiles * thread / threads * kTileRows;
    const std::int64_t end = std::min(width, tiles * (thread + 1) / threads * kTileRows);
    transpose_rows(runs, view, width, begin, end, out);
  });
}

// Rows [first, first + rows) of their tensor into `chunk`.
void scatter_straight(const HfPart& part, std::span<const float> ours, std::int64_t width, std::int64_t first, std::int64_t rows,
                      float* chunk) {
  for (const RowRun& run : part.rows) {
    const std::int64_t begin = std::max(run.theirs, first);
    const std::int64_t end = std::min(run.theirs + run.count, first + rows);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const from = ours.data() + (run.ours + (row - run.theirs) * run.step) * width;
      std::copy(from, from + width, chunk + (row - first) * width);
    }
  }
}

void scatter_transposed(const HfPart& part, std::span<const float> ours, std::int64_t width, std::int64_t first, std::int64_t rows,
                        float* chunk) {
  const std::int64_t columns = part.shape[1];
  for (const RowRun& run : part.rows) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const float* const from = ours.data() + (run.ours + i * run.step) * width + first;
      float* const to = chunk + run.theirs + i;
      for (std::int64_t row = 0; row < rows; ++row) to[row * columns] = from[row];
    }
  }
}

}  // namespace

void gather_part(const HfPart& part, const TensorView& view, const OurRows& rows, std::span<float> out) {
  PLIMSOLL_CHECK(view.shape == part.shape, "{} is {}", view.name, to_string(view));
  const std::vector<RowRun> runs = within(part.rows, rows.first, std::ssize(out) / rows.elements);
  if (runs.empty()) return;
  if (part.transposed) {
    gather_transposed(runs, view, rows.elements, out);
  } else {
    gather_straight(runs, view, rows.elements, out);
  }
}

void scatter_part(const HfPart& part, std::span<const float> ours, std::int64_t row_elements, FileDType dtype,
                  const std::function<void(std::int64_t, std::span<const std::byte>)>& write) {
  const std::int64_t rows = part.shape[0];
  const std::int64_t columns = part.shape.size() == 1 ? 1 : part.shape[1];
  const std::int64_t element_bytes = bits_of(dtype) / 8;
  const std::int64_t chunk_rows = std::clamp<std::int64_t>(kChunkElements / columns, 1, rows);
  std::vector<float> values(static_cast<std::size_t>(chunk_rows * columns));
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(element_bytes));
  for (std::int64_t first = 0; first < rows; first += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, rows - first);
    if (part.transposed) {
      scatter_transposed(part, ours, row_elements, first, count, values.data());
    } else {
      scatter_straight(part, ours, row_elements, first, count, values.data());
    }
    const std::span<std::byte> filled = std::span(bytes).first(static_cast<std::size_t>(count * columns * element_bytes));
    write_f32(dtype, std::span(values).first(static_cast<std::size_t>(count * columns)), filled);
    write(first * columns * element_bytes, filled);
  }
}

}  // namespace plimsoll::formats
