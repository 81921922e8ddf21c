#include "observe/chrome_trace.h"

#include <gtest/gtest.h>

#include <thread>

namespace plimsoll::observe {
namespace {

TEST(ChromeTrace, WritesNamedLanesAndSpans) {
  std::string text;
  ChromeTrace trace([&](std::string_view piece) { text += piece; }, 100.0);
  trace.name_process(0, "rank 0");
  trace.name_thread({0, 2}, "compute");
  trace.write({.name = "block \"1\"\n",
               .category = "compute",
               .lane = {0, 2},
               .begin = 100.000001,
               .seconds = 0.0000025,
               .args = {{"bytes", 12}, {"op", "matmul"}}});
  trace.finish();
  const base::Json parsed = base::parse_json(text, "trace", {.strict = true});
  ASSERT_EQ(parsed.size(), 5u);
  EXPECT_EQ(parsed.at(0).at("name").as_string(), "process_name");
  EXPECT_EQ(parsed.at(2).at("args").at("name").as_string(), "compute");
  const base::Json& span = parsed.at(4);
  EXPECT_EQ(span.at("ph").as_string(), "X");
  EXPECT_EQ(span.at("name").as_string(), "block \"1\"\n");
  EXPECT_DOUBLE_EQ(span.at("ts").as_double(), 1.0);
  EXPECT_DOUBLE_EQ(span.at("dur").as_double(), 2.5);
  EXPECT_EQ(span.at("tid").as_integer(), 2);
  EXPECT_EQ(span.at("args").at("bytes").as_integer(), 12);
}

TEST(ChromeTrace, EmptyTraceIsValid) {
  std::string text;
  ChromeTrace trace([&](std::string_view piece) { text += piece; }, 0.0);
  trace.finish();
  EXPECT_EQ(base::parse_json(text, "trace", {.strict = true}).size(), 0u);
}

TEST(SpanLog, CollectsScopesFromSeveralThreads) {
  SpanLog log(16);
  ManualClock clock;
  {
    ScopedSpan outer(&log, clock, "outer", "test", {0, 0});
    clock.advance(1.0);
    {
      ScopedSpan inner(&log, clock, "inner", "test", {0, 0});
      inner.add_arg("n", 3);
      clock.advance(0.5);
    }
    const ScopedSpan nothing(nullptr, clock, "nothing", "test", {0, 0});
  }
  const std::vector<Span> spans = log.take();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "outer");
  EXPECT_EQ(spans[0].seconds, 1.5);
  EXPECT_EQ(spans[1].begin, 1.0);
  EXPECT_EQ(spans[1].args.at(0).second.as_integer(), 3);
  EXPECT_TRUE(log.take().empty());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 100; ++n) log.add({.name = "x", .category = "", .lane = {i, 0}, .begin = 0, .seconds = 0});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log.take().size(), 400u);
}

TEST(SystemClock, MovesForward) {
  const SystemClock clock;
  const double first = clock.seconds();
  EXPECT_GE(clock.seconds(), first);
  EXPECT_GT(clock.unix_seconds(), 1.6e9);
}

}  // namespace
}  // namespace plimsoll::observe
