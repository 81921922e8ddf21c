// 8-bit products in every layout that has them: what one rank computes with the same micro-batches.
#include <gtest/gtest.h>

#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

Layout layout_of(std::int64_t data, std::int64_t pipe, std::int64_t micro) {
  Layout layout{.strategy = {}, .micro = micro};
  layout.strategy.data = data;
  layout.strategy.pipe = pipe;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

// A micro-batch of four samples has 48 rows: products of 8-bit operands want multiples of 16. Stages see the values that one rank sees,
// and histories of largest values are those of their own blocks.
TEST(EightBitRanks, PipelinesAreOneRank) {
  for (const Family family : {families::gpt2(), families::llama()}) {
    for (const std::int64_t history : {0, 3}) {
      const Task task{.model = small_model(family), .precision = Precision::fp8, .amax_history = history, .samples = 8, .steps = 3};
      const Outcome alone = train(task, layout_of(1, 1, 4));
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        Layout layout = layout_of(1, 2, 4);
        layout.strategy.schedule = schedule;
        SCOPED_TRACE(strategy::describe(layout.strategy));
        expect_close(train(task, layout), alone, history == 0 ? tolerance(Precision::f32) : tolerance(Precision::bf16));
      }
    }
  }
}

// Parts of a tensor have scales of their own, but those are powers of two: what is rounded is the same, unless it is tiny. Sums of parts
// are rounded to bf16 before they meet, and a value that lies differently then is rounded differently to 8 bits.
TEST(EightBitRanks, DataAndTensorRanksAreOneRank) {
  for (const Family family : {families::gpt2(), families::llama()}) {
    for (const std::int64_t history : {0, 3}) {
      Task task{.model = small_model(family), .precision = Precision::fp8, .amax_history = history, .samples = 8, .steps = 3};
      task.model.ffn = 96;  // half of it is still a multiple of 16
      const Outcome alone = train(task, layout_of(1, 1, 4));
      for (const auto& [data, tensor, zero, by_rows] : {std::tuple(2, 1, 0, false), std::tuple(2, 1, 3, false), std::tuple(1, 2, 0, false),
                                                        std::tuple(1, 2, 0, true), std::tuple(2, 2, 1, true)}) {
        Layout layout = layout_of(data, 1, 4);
        layout.strategy.tensor = tensor;
        layout.strategy.zero = zero;
        layout.strategy.sequence_parallel = by_rows;
        SCOPED_TRACE(strategy::describe(layout.strategy));
        expect_close(train(task, layout), alone, tolerance(Precision::bf16));
      }
    }
  }
}

// A rank's part of a layer must still be something that the products take.
TEST(EightBitRanks, PartsThatNoProductTakesAreRefused) {
  const Task task{.model = small_model(families::llama()), .precision = Precision::fp8, .samples = 8, .steps = 1};
  Layout layout = layout_of(1, 1, 4);
  layout.strategy.tensor = 2;  // 104 of 208 rows of gates and ups
  EXPECT_THROW(
      {
        try {
          train(task, layout);
        } catch (const base::Error& error) {
          EXPECT_NE(std::string(error.what()).find("16 must divide them"), std::string::npos) << error.what();
          throw;
        }
      },
      base::Error);
}

}  // namespace
}  // namespace plimsoll::ranks
