// Shared resources: flows slow each other down in proportion, nothing is lost or gained, and each ends once.
#include <gtest/gtest.h>

#include <map>
#include <queue>

#include "base/random.h"
#include "executor/sim/flows.h"

namespace plimsoll::executor::sim {
namespace {

struct Start {
  double time = 0.0;
  double seconds = 1.0;
  double demand = 1.0;
  std::vector<Flows::ResourceId> resources;
};

// When each flow ended, in the order of their starts.
std::vector<double> ends_of(Flows& flows, const std::vector<Start>& starts) {
  const auto later = [](const Flows::End& a, const Flows::End& b) { return a.time > b.time; };
  std::priority_queue<Flows::End, std::vector<Flows::End>, decltype(later)> events(later);
  const auto note = [&](const Flows::End& end) { events.push(end); };
  std::vector<double> ends(starts.size(), -1.0);
  std::map<Flows::FlowId, std::size_t> owner;
  std::size_t next = 0;
  while (next < starts.size() || !events.empty()) {
    if (next < starts.size() && (events.empty() || starts[next].time <= events.top().time)) {
      const Start& start = starts[next];
      owner[flows.start(start.time, start.seconds, start.demand, start.resources, note)] = next;
      ++next;
      continue;
    }
    const Flows::End end = events.top();
    events.pop();
    if (!flows.is_current(end)) continue;
    EXPECT_LT(ends[owner.at(end.flow)], 0.0) << "ended twice";
    ends[owner.at(end.flow)] = end.time;
    flows.finish(end.time, end.flow, note);
  }
  return ends;
}

TEST(Flows, AloneTakesItsOwnTime) {
  Flows flows;
  const auto link = flows.add_resource(1.0);
  EXPECT_EQ(ends_of(flows, {{.time = 2.0, .seconds = 3.0, .resources = {link}}, {.time = 7.0, .seconds = 1.0, .resources = {link}}}),
            (std::vector<double>{5.0, 8.0}));
}

TEST(Flows, ShareWhatThereIs) {
  Flows flows;
  const auto link = flows.add_resource(1.0);
  // Both at half pace until the short one ends at 2; the long one then has one second left.
  EXPECT_EQ(ends_of(flows, {{.seconds = 1.0, .resources = {link}}, {.seconds = 2.0, .resources = {link}}}),
            (std::vector<double>{2.0, 3.0}));
  // The second comes when half of the first is done.
  EXPECT_EQ(ends_of(flows, {{.time = 10.0, .seconds = 1.0, .resources = {link}}, {.time = 10.5, .seconds = 1.0, .resources = {link}}}),
            (std::vector<double>{11.5, 12.0}));
}

TEST(Flows, CoresAreEnoughUntilTheyAreNot) {
  Flows flows;
  const auto cores = flows.add_resource(4.0);
  EXPECT_EQ(ends_of(flows, {{.seconds = 1.0, .demand = 2.0, .resources = {cores}}, {.seconds = 1.0, .demand = 2.0, .resources = {cores}}}),
            (std::vector<double>{1.0, 1.0}));
  EXPECT_EQ(ends_of(flows, {{.time = 5.0, .seconds = 1.0, .demand = 4.0, .resources = {cores}},
                            {.time = 5.0, .seconds = 1.0, .demand = 4.0, .resources = {cores}}}),
            (std::vector<double>{7.0, 7.0}));
}

TEST(Flows, TheNarrowestResourceCounts) {
  Flows flows;
  const auto here = flows.add_resource(1.0);
  const auto there = flows.add_resource(1.0);
  // The second shares `there` with the third only while the third lasts.
  EXPECT_EQ(ends_of(flows, {{.seconds = 1.0, .resources = {here}}, {.seconds = 3.0, .resources = {here, there}}}),
            (std::vector<double>{2.0, 4.0}));
}

// On one resource that is never idle, work is neither lost nor gained.
TEST(Flows, KeepTheirWork) {
  const base::RandomKey key = base::random_key(3, 1);
  for (std::uint32_t trial = 0; trial < 50; ++trial) {
    Flows flows;
    const auto link = flows.add_resource(1.0);
    std::vector<Start> starts;
    double work = 0.0;
    for (std::uint32_t flow = 0; flow < 20; ++flow) {
      const double seconds = 0.1 + base::uniform_from_bits(base::philox({trial, flow, 0, 0}, key)[0]);
      starts.push_back({.time = 0.01 * flow, .seconds = seconds, .resources = {link}});
      work += seconds;
    }
    const std::vector<double> ends = ends_of(flows, starts);
    EXPECT_NEAR(*std::max_element(ends.begin(), ends.end()), work, 1e-9);
    for (std::size_t flow = 0; flow < ends.size(); ++flow) EXPECT_GE(ends[flow], starts[flow].time + starts[flow].seconds);
  }
}

}  // namespace
}  // namespace plimsoll::executor::sim
