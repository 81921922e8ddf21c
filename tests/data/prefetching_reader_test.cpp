#include "data/prefetching_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "data/batch_memory.h"
#include "data/batch_reader.h"
#include "data/batch_share.h"

namespace plimsoll::data {
namespace {

std::shared_ptr<const BatchReader> make_reader() {
  return std::make_shared<BatchReader>(counting_tokens(3000), BatchReaderOptions{.sequence = 16, .vocab = 3000, .seed = 4});
}

// Counts what passes, and fails or dawdles on request.
class ProbeSource final : public BatchSource {
 public:
  explicit ProbeSource(std::shared_ptr<const BatchSource> inner) : inner_(std::move(inner)) {}
  std::int64_t read(const SampleRange& range, const BatchView& batch) const override {
    ++reads;
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (range.first == fail_at) base::bad_input("sample {} is broken", range.first);
    return inner_->read(range, batch);
  }

  mutable std::atomic<int> reads{0};
  std::atomic<bool> slow{false};
  std::atomic<std::int64_t> fail_at{-1};

 private:
  std::shared_ptr<const BatchSource> inner_;
};

TEST(PrefetchingReader, GivesTheSameBytesInOrder) {
  const auto reader = make_reader();
  const BatchShare share{.global = 12, .micro = 2, .ranks = 2, .rank = 1};
  for (const std::int64_t depth : {1, 2, 5}) {
    const PrefetchingReader ahead(reader, {.depth = depth, .order = reading_order(share, 0)});
    for (std::int64_t step = 0; step < 50; ++step) {
      for (std::int64_t m = 0; m < share.micro_batches(); ++m) {
        const SampleRange range = range_of(share, step * share.global, m);
        ASSERT_EQ(read_batch(ahead, range, 16), read_batch(*reader, range, 16));
      }
    }
  }
}

TEST(PrefetchingReader, GivesTheSameBytesInAnyOrder) {
  const auto probe = std::make_shared<ProbeSource>(make_reader());
  probe->slow = true;
  const PrefetchingReader ahead(probe, {.depth = 3, .order = [](const SampleRange& r) { return SampleRange{r.first + 2, 2}; }});
  const auto reader = make_reader();
  std::mt19937 random(1);
  std::int64_t cursor = 0;
  for (int i = 0; i < 200; ++i) {
    cursor = random() % 4 == 0 ? static_cast<std::int64_t>(random() % 1000) : cursor + 2;
    const std::int64_t count = random() % 10 == 0 ? 1 : 2;  // a short last batch
    ASSERT_EQ(read_batch(ahead, {cursor, count}, 16, 2), read_batch(*reader, {cursor, count}, 16, 2));
  }
}

TEST(PrefetchingReader, ReadsAheadOnlySoFar) {
  const auto probe = std::make_shared<ProbeSource>(make_reader());
  const PrefetchingReader ahead(probe, {.depth = 3, .order = [](const SampleRange& r) { return SampleRange{r.first + 1, 1}; }});
  read_batch(ahead, {0, 1}, 16);
  for (int wait = 0; wait < 1000 && probe->reads < 4; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(probe->reads, 4);
}

TEST(PrefetchingReader, ErrorsBelongToTheirRequest) {
  const auto probe = std::make_shared<ProbeSource>(make_reader());
  probe->fail_at = 6;
  const PrefetchingReader ahead(probe, {.depth = 4, .order = [](const SampleRange& r) { return SampleRange{r.first + 2, 2}; }});
  for (const std::int64_t first : {0, 2, 4}) EXPECT_EQ(refusal([&] { read_batch(ahead, {first, 2}, 16); }), "(no error)");
  EXPECT_EQ(refusal([&] { read_batch(ahead, {6, 2}, 16); }), "sample 6 is broken");
  EXPECT_EQ(refusal([&] { read_batch(ahead, {8, 2}, 16); }), "(no error)");
}

TEST(PrefetchingReader, StopsWhileReading) {
  const auto probe = std::make_shared<ProbeSource>(make_reader());
  probe->slow = true;
  for (int i = 0; i < 20; ++i) {
    const PrefetchingReader ahead(probe, {.depth = 8, .order = [](const SampleRange& r) { return SampleRange{r.first + 2, 2}; }});
    if (i % 2 == 0) read_batch(ahead, {0, 2}, 16);
  }
}

}  // namespace
}  // namespace plimsoll::data
