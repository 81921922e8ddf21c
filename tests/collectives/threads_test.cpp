// Ranks as threads: every operation against a plain fold, the bytes that move, and what happens when a rank goes wrong.
#include "collectives/local/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "collectives/cases.h"

namespace plimsoll::collectives {
namespace {

using base::DType;
using local::run_threads;

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, EveryOperationEqualsAPlainFold) {
  // Two tiles of a fold and a rest; the thread sanitizer needs the meetings, not the arithmetic.
#if defined(__SANITIZE_THREAD__)
  const tests::CaseOptions options{.lengths = {0, 7, 130}};
#else
  const tests::CaseOptions options{};
#endif
  run_threads(GetParam(), [&](Transport& transport) { tests::run_cases(transport, options); });
}

TEST_P(ThreadRanks, RandomSequencesOnSeveralGroups) {
  for (const std::uint64_t seed : {1, 2}) {
    run_threads(GetParam(), [&](Transport& transport) { tests::run_random(transport, 150, seed); });
  }
}

TEST_P(ThreadRanks, MessagesArriveInOrderAndSendsDoNotWait) { run_threads(GetParam(), tests::run_messages); }

INSTANTIATE_TEST_SUITE_P(OneToEight, ThreadRanks, testing::Range(1, 9));

TEST(Threads, GroupsOfOneRankWorkAtOnceOnThreadsOfTheirOwn) {
  run_threads(3, [](Transport& transport) {
    std::vector<std::unique_ptr<Group>> groups;
    for (int stream = 0; stream < 3; ++stream) groups.push_back(transport.make_world("stream"));
    std::vector<std::jthread> streams;
    for (int stream = 0; stream < 3; ++stream) {
      streams.emplace_back([&, stream] {
        for (int call = 0; call < 200; ++call) {
          std::vector<float> data(static_cast<std::size_t>(100 * stream + call), static_cast<float>(stream + 1));
          const auto bytes = std::as_writable_bytes(std::span(data));
          groups[static_cast<std::size_t>(stream)]->all_reduce(bytes, bytes, DType::f32, Reduction::sum);
          for (const float value : data) EXPECT_EQ(value, static_cast<float>(3 * (stream + 1)));
        }
      });
    }
  });
}

// Bytes each member moves, against the closed forms in group.h.
class WireBytes : public testing::TestWithParam<int> {};

TEST_P(WireBytes, EqualTheClosedForms) {
  const int n = GetParam();
  run_threads(n, [&](Transport& transport) {
    const auto group = transport.make_world("wire");
    const int me = group->rank();
    const std::int64_t count = 840 * 3;  // divisible by 1..8
    const std::int64_t whole = count * 4;
    std::vector<std::byte> a(static_cast<std::size_t>(whole)), b(a.size());
    Traffic expected;
    const auto moved = [&](std::int64_t sent, std::int64_t received, const char* what) {
      expected.sent += sent;
      expected.received += received;
      EXPECT_EQ(group->traffic(), expected) << what;
    };
    group->all_reduce(a, b, DType::f32, Reduction::sum);
    moved(2 * (n - 1) * whole / n, 2 * (n - 1) * whole / n, "all_reduce");
    std::vector<std::int64_t> counts(static_cast<std::size_t>(n), count / n);
    group->reduce_scatter(a, std::span(b).first(static_cast<std::size_t>(whole / n)), counts, DType::f32, Reduction::sum);
    moved((n - 1) * whole / n, (n - 1) * whole / n, "reduce_scatter");
    group->all_gather(std::span(b).first(static_cast<std::size_t>(whole / n)), a, counts, DType::f32);
    moved((n - 1) * whole / n, (n - 1) * whole / n, "all_gather");
    group->broadcast(a, DType::f32, 0);
    moved(me == 0 ? (n - 1) * whole : 0, me == 0 ? 0 : whole, "broadcast");
    group->reduce(a, b, DType::f32, Reduction::sum, n - 1);
    moved(me == n - 1 ? 0 : whole, me == n - 1 ? (n - 1) * whole : 0, "reduce");
    group->all_to_all(a, counts, b, counts, DType::f32);
    moved((n - 1) * whole / n, (n - 1) * whole / n, "all_to_all");
    // Uneven: member i holds i + 1 elements of bytes.
    std::vector<std::int64_t> uneven(static_cast<std::size_t>(n));
    std::iota(uneven.begin(), uneven.end(), 1);
    const std::int64_t total = n * (n + 1) / 2;
    group->all_gather(std::span(b).first(static_cast<std::size_t>(me + 1)), std::span(a).first(static_cast<std::size_t>(total)), uneven,
                      DType::u8);
    moved((n - 1) * (me + 1), total - (me + 1), "uneven all_gather");
    const Share share = share_of(7, n, me);
    group->all_reduce(std::span(a).first(7), std::span(a).first(7), DType::u8, Reduction::max);
    moved((n - 1) * share.count + 7 - share.count, (n - 1) * share.count + 7 - share.count, "all_reduce that does not divide");
    if (n > 1 && me == 0) group->send(a, 1, 0);
    if (me == 1) group->receive(a, 0, 0);
    if (me < 2 && n > 1) moved(me == 0 ? whole : 0, me == 1 ? whole : 0, "message");
    group->barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(OneToEight, WireBytes, testing::Range(1, 9));

// Runs ranks that go wrong and gives what every rank was told.
std::vector<std::string> told(int ranks, const std::function<void(Transport&)>& body, const Limits& limits = {}) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  const auto listen = [&](Transport& transport) {
    try {
      body(transport);
    } catch (const std::exception& error) {
      messages[static_cast<std::size_t>(transport.rank())] = error.what();
      throw;
    }
  };
  EXPECT_ANY_THROW(run_threads(ranks, listen, limits));
  return messages;
}

bool holds(const std::string& text, std::initializer_list<const char*> words) {
  return std::all_of(words.begin(), words.end(), [&](const char* word) { return text.find(word) != std::string::npos; });
}

TEST(Threads, ARankThatCallsSomethingElseIsNamedByAll) {
  std::vector<std::byte> data(400);
  struct Wrong {
    std::function<void(Group&)> call;
    std::vector<const char*> words;
  };
  const Wrong wrongs[] = {
      {[&](Group& g) { g.barrier(); }, {"rank 2 asks for barrier #3"}},
      {[&](Group& g) {
         std::vector<std::byte> d(396);
         g.all_reduce(d, d, DType::f32, Reduction::sum);
       },
       {"rank 2", "396 bytes"}},
      {[&](Group& g) {
         std::vector<std::byte> d(400);
         g.all_reduce(d, d, DType::bf16, Reduction::sum);
       },
       {"rank 2", "bf16"}},
      {[&](Group& g) {
         std::vector<std::byte> d(400);
         g.all_reduce(d, d, DType::f32, Reduction::max);
       },
       {"rank 2", "max"}},
      {[&](Group& g) {
         std::vector<std::byte> d(400);
         g.broadcast(d, DType::f32, 1);
       },
       {"rank 2 asks for broadcast #3 (root 1"}},
  };
  for (const Wrong& wrong : wrongs) {
    const auto messages = told(4, [&](Transport& transport) {
      const auto group = transport.make_world("data");
      group->barrier();
      group->barrier();
      if (transport.rank() == 2) return wrong.call(*group);
      std::vector<std::byte> own(400);
      group->all_reduce(own, own, DType::f32, Reduction::sum);
    });
    for (const std::string& message : messages) {
      EXPECT_TRUE(holds(message, {"group 'data'", "asks for all_reduce #3 (sum, f32, 400 bytes)"})) << message;
      for (const char* word : wrong.words) EXPECT_TRUE(holds(message, {word})) << message;
    }
  }
}

TEST(Threads, CountsThatDifferAreNamed) {
  const auto messages = told(3, [](Transport& transport) {
    const auto group = transport.make_world("shares");
    std::vector<std::int64_t> counts{1, 2, 3};
    if (transport.rank() == 1) counts = {2, 2, 2};
    std::vector<std::byte> in(static_cast<std::size_t>(counts[static_cast<std::size_t>(transport.rank())])), out(6);
    group->all_gather(in, out, counts, DType::u8);
  });
  for (const std::string& message : messages) EXPECT_TRUE(holds(message, {"group 'shares'", "rank 0", "rank 1", "2 elements"})) << message;
  const auto pairs = told(2, [](Transport& transport) {
    const auto group = transport.make_world("pairs");
    const std::vector<std::int64_t> in_counts{1, 2}, out_counts{transport.rank() == 0 ? 1 : 4, transport.rank() == 0 ? 1 : 2};
    std::vector<std::byte> in(3), out(static_cast<std::size_t>(out_counts[0] + out_counts[1]));
    group->all_to_all(in, in_counts, out, out_counts, DType::u8);
  });
  for (const std::string& message : pairs) EXPECT_TRUE(holds(message, {"all_to_all", "elements"})) << message;
}

TEST(Threads, ARankThatFailsWakesAllThatWait) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<int> kinds(4);
  const auto body = [&](Transport& transport) {
    const auto world = transport.make_world("world");
    const auto pair = transport.make_group(transport.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3}, "pair");
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      base::bad_input("tokens.bin is broken");
    }
    try {
      std::vector<std::byte> data(64);
      if (transport.rank() == 0) pair->receive(data, 1, 5);
      if (transport.rank() == 2) pair->all_reduce(data, data, DType::f32, Reduction::sum);
      world->barrier();
    } catch (const base::Error& error) {
      kinds[static_cast<std::size_t>(transport.rank())] = error.exit_code();
      throw;
    }
  };
  const auto messages = told(4, body);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_TRUE(holds(messages[0], {"receive (from member 1, tag 5, u8, 64 bytes)", "group 'pair'", "rank 1 failed: tokens.bin is broken"}))
      << messages[0];
  EXPECT_TRUE(holds(messages[2], {"rank 2", "all_reduce #1 (sum, f32, 64 bytes)", "rank 1 failed"})) << messages[2];
  EXPECT_TRUE(holds(messages[3], {"rank 3", "barrier #1", "group 'world'", "rank 1 failed"})) << messages[3];
  EXPECT_EQ(kinds, (std::vector{4, 0, 4, 4}));
}

TEST(Threads, TheFirstFailureIsTheOneThrown) {
  try {
    run_threads(3, [](Transport& transport) {
      const auto world = transport.make_world("world");
      if (transport.rank() == 2) base::not_legal("layer 3 does not fit");
      world->barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::not_legal);
    EXPECT_STREQ(error.what(), "layer 3 does not fit");
  }
}

TEST(Threads, ARankThatEndsEarlyIsNamed) {
  const auto messages = told(2, [](Transport& transport) {
    const auto world = transport.make_world("world");
    if (transport.rank() == 0) world->barrier();
  });
  EXPECT_TRUE(holds(messages[0], {"barrier #1", "rank 1 has ended"})) << messages[0];
}

TEST(Threads, ARankThatHangsIsNamedAfterTheLimit) {
  std::atomic<bool> done{false};
  const auto start = std::chrono::steady_clock::now();
  const auto messages = told(3,
                             [&](Transport& transport) {
                               const auto world = transport.make_world("world");
                               world->barrier();
                               if (transport.rank() == 1) {
                                 while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                 return;
                               }
                               try {
                                 world->barrier();
                               } catch (...) {
                                 done = true;
                                 throw;
                               }
                             },
                             {.progress = 0.2});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  for (const int rank : {0, 2}) {
    const std::string& message = messages[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(holds(message, {"barrier #2", "group 'world'"})) << message;
    EXPECT_TRUE(holds(message, {"rank 1 (its last call here: barrier #1) did not come"}) || holds(message, {"failed"})) << message;
  }
}

TEST(CallLog, KeepsTheNewestCallsOfAllGroups) {
  constexpr std::uint64_t kBarriers = 700;
  run_threads(2, [](Transport& transport) {
    const auto first = transport.make_world("first");
    const auto second = transport.make_world("second");
    float number = 1.0f;
    const auto bytes = std::as_writable_bytes(std::span(&number, 1));
    for (std::uint64_t call = 0; call < kBarriers; ++call) {
      first->barrier();
      second->all_reduce(bytes, bytes, base::DType::f32, Reduction::max);
    }
    const std::vector<CallLog::Entry> entries = transport.calls().last();
    ASSERT_EQ(entries.size(), CallLog::kKept);
    EXPECT_EQ(transport.calls().count(), 2 * kBarriers);
    double before = 0.0;
    for (std::size_t index = 0; index < entries.size(); ++index) {
      const CallLog::Entry& entry = entries[index];
      EXPECT_EQ(entry.group, index % 2 == 0 ? "first" : "second");
      EXPECT_EQ(entry.call.sequence, kBarriers - CallLog::kKept / 2 + index / 2 + 1);
      EXPECT_GE(entry.began, before);
      EXPECT_GE(entry.ended, entry.began);
      before = entry.began;
    }
    const std::string text = transport.calls().text(transport.rank(), transport.size());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<std::ptrdiff_t>(CallLog::kKept) + 1);
    EXPECT_NE(text.find("second  all_reduce #700 (max, f32, 4 bytes)"), std::string::npos) << text.substr(text.size() - 200);
  });
}

TEST(CallLog, ACallThatNeverCameBackIsNotOver) {
  std::string text;
  EXPECT_THROW(run_threads(2,
                           [&](Transport& transport) {
                             const auto world = transport.make_world("world");
                             world->barrier();
                             if (transport.rank() == 1) {
                               std::this_thread::sleep_for(std::chrono::milliseconds(500));
                               return;
                             }
                             try {
                               world->barrier();
                             } catch (const base::Error&) {
                               text = transport.calls().text(0, 2);
                               throw;
                             }
                           },
                           {.progress = 0.1}),
               base::Error);
  EXPECT_NE(text.find("not over  world  barrier #2"), std::string::npos) << text;
  EXPECT_NE(text.find("s  world  barrier #1"), std::string::npos) << text;
}

TEST(Threads, AMessageOfAnotherLengthIsNamed) {
  const auto messages = told(2, [](Transport& transport) {
    const auto world = transport.make_world("world");
    std::vector<std::byte> data(transport.rank() == 0 ? 8 : 12);
    if (transport.rank() == 0) world->send(data, 1, 7);
    if (transport.rank() == 1) world->receive(data, 0, 7);
  });
  EXPECT_TRUE(holds(messages[1], {"rank 0 sent 8 bytes with tag 7", "rank 1 expects 12"})) << messages[1];
}

// A rank may fail at any time while others read its memory: under the sanitizers this finds a use after free.
TEST(Threads, AbortsAtRandomTimesTouchNoFreedMemory) {
  for (int trial = 0; trial < 30; ++trial) {
    std::atomic<int> calls{0};
    EXPECT_ANY_THROW(run_threads(4, [&](Transport& transport) {
      const auto world = transport.make_world("world");
      for (int call = 0;; ++call) {
        std::vector<std::byte> data(4000 + static_cast<std::size_t>(call));
        if (calls.fetch_add(1) == 20 + 3 * trial) throw std::runtime_error("enough");
        world->all_reduce(data, data, DType::u8, Reduction::sum);
      }
    }));
  }
}

}  // namespace
}  // namespace plimsoll::collectives
