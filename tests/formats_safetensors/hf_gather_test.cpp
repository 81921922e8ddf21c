// Tensors that several threads move at once arrive as element by element they should.
#include "formats/hf_gather.h"

#include <gtest/gtest.h>

#include <random>

namespace plimsoll::formats {
namespace {

// `rows` x `columns` of theirs; our tensor has the runs' rows.
void expect_gathered(const HfPart& part, std::int64_t width, std::int64_t our_rows) {
  std::vector<float> theirs(static_cast<std::size_t>(part.shape[0] * part.shape[1]));
  std::mt19937 random(7);
  for (float& value : theirs) value = static_cast<float>(random());
  TensorView view;
  view.name = "tensor";
  view.dtype = FileDType::f32;
  view.shape = part.shape;
  view.data = std::as_bytes(std::span(theirs));
  std::vector<float> ours(static_cast<std::size_t>(our_rows * width), -1.0f);
  gather_part(part, view, {0, width}, ours);
  std::int64_t wrong = 0;
  for (const RowRun& run : part.rows) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (std::int64_t column = 0; column < width; ++column) {
        const std::int64_t from = part.transposed ? column * part.shape[1] + run.theirs + i : (run.theirs + i) * part.shape[1] + column;
        const std::int64_t to = (run.ours + i * run.step) * width + column;
        wrong += ours[static_cast<std::size_t>(to)] != theirs[static_cast<std::size_t>(from)] ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(GatherPart, LargeTensors) {
  expect_gathered({.name = "straight", .shape = {6001, 1023}, .rows = {{.ours = 0, .theirs = 0, .count = 6001}}}, 1023, 6001);
  expect_gathered({.name = "rows apart", .shape = {3001, 511}, .rows = {{.ours = 1, .theirs = 0, .count = 3001, .step = 2}}}, 511, 6002);
  expect_gathered({.name = "transposed",
                   .shape = {1999, 1500},
                   .rows = {{.ours = 700, .theirs = 0, .count = 800}, {.ours = 0, .theirs = 800, .count = 700}},
                   .transposed = true},
                  1999, 1500);
}

}  // namespace
}  // namespace plimsoll::formats
