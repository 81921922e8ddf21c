// Streams on threads of their own: tokens order them, run after run, and a failure on one ends all with its cause.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "executor/core/stream_workers.h"
#include "executor/core/tokens.h"

namespace plimsoll::executor {
namespace {

// Two streams hand a number back and forth: without the tokens' order this is a race.
TEST(Streams, TokensOrderTwoStreams) {
  constexpr std::uint32_t kRounds = 50;
  Tokens tokens(2 * kRounds);
  StreamWorkers workers(1);
  for (int run = 1; run <= 20; ++run) {
    std::int64_t number = 0;
    tokens.start();
    workers.run(
        2,
        [&](std::size_t stream) {
          for (std::uint32_t round = 0; round < kRounds; ++round) {
            if (stream == 0) {
              if (round > 0) tokens.wait(2 * round - 1);
              ++number;
              tokens.give(2 * round);
            } else {
              tokens.wait(2 * round);
              number *= 2;
              number %= 1'000'003;
              tokens.give(2 * round + 1);
            }
          }
        },
        [&](const std::exception_ptr&) { tokens.fail(); });
    std::int64_t expected = 0;
    for (std::uint32_t round = 0; round < kRounds; ++round) expected = (expected + 1) * 2 % 1'000'003;
    EXPECT_EQ(number, expected) << "run " << run;
  }
}

TEST(Streams, AFailureEndsEveryStreamAndIsTheOneThrown) {
  for (const std::size_t failing : {0u, 1u, 2u}) {
    Tokens tokens(3);
    StreamWorkers workers(2);
    for (int run = 0; run < 3; ++run) {
      tokens.start();
      const auto job = [&](std::size_t stream) {
        if (stream == failing) throw std::runtime_error("the cause");
        tokens.wait(static_cast<std::uint32_t>(failing));  // never given
      };
      try {
        workers.run(3, job, [&](const std::exception_ptr&) { tokens.fail(); });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "the cause");
      }
    }
  }
}

TEST(Streams, AProgramWithFewerStreamsLeavesWorkersAlone) {
  StreamWorkers workers(3);
  for (std::size_t streams : {4u, 1u, 2u, 4u}) {
    std::vector<int> ran(4, 0);
    workers.run(streams, [&](std::size_t stream) { ran[stream] = 1; }, [](const std::exception_ptr&) {});
    for (std::size_t stream = 0; stream < 4; ++stream) EXPECT_EQ(ran[stream], stream < streams ? 1 : 0);
  }
}

}  // namespace
}  // namespace plimsoll::executor
