// A pipeline schedule of one's own: an order of pieces for every rank, written as a file that a run names. It is checked, drawn and run as
// those in src/strategy/schedules are.
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "extending/runs.h"
#include "strategy/schedules/csv.h"

namespace plimsoll::extending {
namespace {

namespace schedules = strategy::schedules;

// Micro-batches in pairs: two forwards, then their two backwards, on every rank. Fewer are held than by gpipe, and sums go by index.
schedules::Schedule in_pairs(const schedules::Shape& shape) {
  schedules::Schedule schedule{.name = "in_pairs", .shape = shape, .ranks = {}};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
    std::vector<schedules::Item>& order = schedule.ranks.emplace_back();
    for (std::int32_t pair = 0; pair < shape.micro_batches; pair += 2) {
      for (const schedules::Work work : {schedules::Work::forward, schedules::Work::backward}) {
        for (std::int32_t micro_batch = pair; micro_batch < pair + 2; ++micro_batch)
          order.push_back({.work = work, .stage = rank, .micro_batch = micro_batch});
      }
    }
    order.push_back({.work = schedules::Work::update, .version = 1});
  }
  return schedule;
}

class ScheduleTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const schedules::Schedule& schedule) {
    const std::string path = folder_.in(name).string();
    std::ofstream(path) << schedules::write_csv(schedule);
    return path;
  }
  // A tied table has two gradients, which ranks add in another order than one does.
  std::vector<double> train(const std::string& out, std::vector<std::string> overrides) {
    overrides.emplace_back("model.tied=false");
    Losses losses;
    train::run(folder_.run(out, overrides), losses);
    return losses.losses;
  }

  Folder folder_;
};

TEST_F(ScheduleTest, TrainsAsOneRankDoes) {
  const std::string file = write("in_pairs.csv", in_pairs({.ranks = 2, .micro_batches = 4}));
  const std::vector<double> one = train("one", {});
  ASSERT_EQ(one.size(), 8u);
  EXPECT_EQ(train("pairs", {"strategy.pipe=2", "strategy.schedule=" + file}), one);
}

TEST_F(ScheduleTest, IsRefusedWhereRanksWouldWaitForEachOther) {
  schedules::Schedule schedule = in_pairs({.ranks = 2, .micro_batches = 4});
  // The last rank asks for the second pair before the first: the other has not sent it yet, and waits for gradients of the first.
  std::rotate(schedule.ranks[1].begin(), schedule.ranks[1].begin() + 4, schedule.ranks[1].begin() + 8);
  const std::string file = write("stuck.csv", schedule);
  EXPECT_THROW(train("stuck", {"strategy.pipe=2", "strategy.schedule=" + file}), base::Error);
}

}  // namespace
}  // namespace plimsoll::extending
