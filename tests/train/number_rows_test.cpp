// Ids of a step's tokens become places in a list of the different ones, the same for all ranks.
#include "train/session/number_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <random>
#include <set>

#include "base/error.h"
#include "collectives/local/threads.h"

namespace plimsoll::train {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(NumberRows, PutsIdsInOrder) {
  Ids first{7, 3, 7, 100000};
  Ids second{0, 3, 3, 7};
  const std::array<std::span<std::int32_t>, 2> tokens{first, second};
  Ids rows(8, 55);
  number_rows(tokens, rows, nullptr);
  EXPECT_EQ(rows, (Ids{0, 3, 7, 100000, -1, -1, -1, -1}));
  EXPECT_EQ(first, (Ids{2, 1, 2, 3}));
  EXPECT_EQ(second, (Ids{0, 1, 1, 2}));
}

TEST(NumberRows, FillsAllRoomWhereEveryRowIsRead) {
  Ids ids{2, 1, 0, 1};
  const std::array<std::span<std::int32_t>, 1> tokens{ids};
  Ids rows(3);
  number_rows(tokens, rows, nullptr);
  EXPECT_EQ(rows, (Ids{0, 1, 2}));
  EXPECT_EQ(ids, (Ids{2, 1, 0, 1}));
}

TEST(NumberRows, RefusesWhatIsNoRow) {
  Ids ids{2, -1};
  const std::array<std::span<std::int32_t>, 1> tokens{ids};
  Ids rows(2);
  EXPECT_THROW(number_rows(tokens, rows, nullptr), base::Error);
}

TEST(NumberRows, IsTheSameListOnAllRanks) {
  constexpr int kRanks = 3;
  constexpr std::size_t kTokens = 40;
  const auto ids_of = [](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    Ids ids(kTokens);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 500);
    return ids;
  };
  std::set<std::int32_t> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const std::int32_t id : ids_of(rank)) all.insert(id);
  }
  collectives::local::run_threads(kRanks, [&](collectives::Transport& transport) {
    const std::unique_ptr<collectives::Group> world = transport.make_world("test");
    Ids ids = ids_of(transport.rank());
    const std::array<std::span<std::int32_t>, 1> tokens{ids};
    Ids rows(kRanks * kTokens);
    number_rows(tokens, rows, world.get());
    const Ids before = ids_of(transport.rank());
    for (std::size_t index = 0; index < kTokens; ++index) EXPECT_EQ(rows[static_cast<std::size_t>(ids[index])], before[index]);
    EXPECT_TRUE(std::equal(all.begin(), all.end(), rows.begin()));
    EXPECT_EQ(rows[all.size()], -1);
  });
}

}  // namespace
}  // namespace plimsoll::train
