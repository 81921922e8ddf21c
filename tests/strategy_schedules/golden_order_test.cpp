// Orders of the worked examples, written out.
#include <gtest/gtest.h>

#include "strategy/schedules/table.h"

namespace plimsoll::strategy::schedules {
namespace {

// "F0 F1 B0": without stages, for schedules with one stage per rank.
std::string order(std::string_view name, const Shape& shape, std::size_t rank) {
  const Schedule schedule = build(name, shape);
  std::string text;
  for (const Item& item : schedule.ranks[rank]) {
    std::string one = short_name(item);
    if (item.work != Work::update && shape.chunks == 1) one.erase(1, one.find('.'));
    text += (text.empty() ? "" : " ") + one;
  }
  return text;
}

TEST(GoldenOrder, GPipeAndOneForwardOneBackward) {
  const Shape shape{.ranks = 4, .micro_batches = 4};
  EXPECT_EQ(order("gpipe", shape, 0), "F0 F1 F2 F3 B3 B2 B1 B0 U1");
  EXPECT_EQ(order("1f1b", shape, 0), "F0 F1 F2 F3 B0 B1 B2 B3 U1");
  EXPECT_EQ(order("1f1b", shape, 2), "F0 F1 B0 F2 B1 F3 B2 B3 U1");
  EXPECT_EQ(order("1f1b", shape, 3), "F0 B0 F1 B1 F2 B2 F3 B3 U1");
  EXPECT_EQ(order("naive", {.ranks = 2, .micro_batches = 2}, 0), "F0 B0 F1 B1 U1");
}

// p = 4, v = 2, m = 8: 10, 8, 6 and 4 forwards come first; micro-batches 0-3 pass chunk 0, then chunk 1, then 4-7 follow.
TEST(GoldenOrder, Interleaved) {
  const Schedule schedule = build("interleaved", {.ranks = 4, .micro_batches = 8, .chunks = 2});
  const std::vector<std::size_t> warm_ups{10, 8, 6, 4};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const std::vector<Item>& items = schedule.ranks[rank];
    std::size_t forwards = 0;
    while (items[forwards].work == Work::forward) ++forwards;
    EXPECT_EQ(forwards, warm_ups[rank] + 1) << "and the steady part starts with another";
  }
  EXPECT_EQ(short_names(schedule.ranks[0]),
            "F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 F0.4 F0.5 "
            "F0.6 B4.0 F0.7 B4.1 F4.4 B4.2 F4.5 B4.3 F4.6 B0.0 F4.7 B0.1 "
            "B0.2 B0.3 B4.4 B4.5 B4.6 B4.7 B0.4 B0.5 B0.6 B0.7 U1");
  EXPECT_EQ(short_names(schedule.ranks[3]),
            "F3.0 F3.1 F3.2 F3.3 F7.0 B7.0 F7.1 B7.1 F7.2 B7.2 F7.3 B7.3 F3.4 B3.0 F3.5 B3.1 F3.6 B3.2 F3.7 B3.3 "
            "F7.4 B7.4 F7.5 B7.5 F7.6 B7.6 F7.7 B7.7 B3.4 B3.5 B3.6 B3.7 U1");
}

TEST(GoldenOrder, VarunaReferenceFigure) {
  const Shape shape{.ranks = 4, .micro_batches = 5};
  const std::string early = "F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4 U1";
  EXPECT_EQ(order("varuna", shape, 0), early);
  EXPECT_EQ(order("varuna", shape, 1), early);
  EXPECT_EQ(order("varuna", shape, 2), "F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4 U1");
  EXPECT_EQ(order("varuna", shape, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 U1");
}

TEST(GoldenOrder, ZeroBubble) {
  EXPECT_EQ(order("zb-h1", {.ranks = 2, .micro_batches = 3}, 0), "F0 F1 I0 W0 F2 I1 W1 I2 W2 U1");
  EXPECT_EQ(order("zb-h1", {.ranks = 2, .micro_batches = 3}, 1), "F0 I0 F1 I1 W0 F2 I2 W1 W2 U1");
  EXPECT_EQ(order("zb-h2", {.ranks = 2, .micro_batches = 4}, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3 U1");
  EXPECT_EQ(order("zb-h2", {.ranks = 2, .micro_batches = 4}, 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 U1");
}

// Rank 0 of two: near pieces are micro-batches 0-1 in stage 0, far ones 2-3 in stage 1.
TEST(GoldenOrder, DualPipe) {
  EXPECT_EQ(short_names(build("dualpipe", {.ranks = 2, .micro_batches = 4}).ranks[0]), "F0.0 F1.2 F0.1 B1.2 F1.3+ B0.0 B1.3 I0.1 W0.1 U1");
  EXPECT_EQ(short_names(build("dualpipe", {.ranks = 2, .micro_batches = 4}).ranks[1]), "F0.2 F1.0 F0.3 B1.0 F1.1+ B0.2 B1.1 I0.3 W0.3 U1");
}

TEST(GoldenOrder, Asynchronous) {
  EXPECT_EQ(order("pipedream", {.ranks = 2, .micro_batches = 1, .batches = 3}, 0), "F0 F1 B0 U1 F2 B1 U2 B2 U3");
  EXPECT_EQ(order("pipedream", {.ranks = 2, .micro_batches = 1, .batches = 3}, 1), "F0 B0 U1 F1 B1 U2 F2 B2 U3");
  EXPECT_EQ(order("2bw", {.ranks = 2, .micro_batches = 2, .batches = 2}, 0), "F0 F1 B0 F2 B1 U1 F3 B2 B3 U2");
}

TEST(GoldenOrder, RecomputeComesBeforeEachBackwardButRightAfterItsForward) {
  EXPECT_EQ(short_names(with_recompute(build("gpipe", {.ranks = 1, .micro_batches = 2})).ranks[0]), "F0.0 F0.1 B0.1 R0.0 B0.0 U1");
  EXPECT_EQ(short_names(with_recompute(build("dualpipe", {.ranks = 2, .micro_batches = 4})).ranks[0]),
            "F0.0 F1.2 F0.1 R1.2 B1.2 R0.0 F1.3+ B0.0 R1.3 B1.3 R0.1 I0.1 W0.1 U1");
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
