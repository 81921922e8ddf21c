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
  for (const Family family : {Family::gpt2, Family::llama}) {
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

}  // namespace
}  // namespace plimsoll::ranks
