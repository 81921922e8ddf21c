#include "data/number_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "support/refusal.h"

namespace plimsoll::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::refusal;

formats::NumberTable table() { return formats::parse_numbers("a,b,label\n1,2,0\n3,4,1\n\n 5 , 6.5e0,2\r\n", "t.csv"); }

TEST(NumberTable, ReadsRowsAndNamesWhatIsWrong) {
  EXPECT_EQ(table().columns, 3);
  EXPECT_THAT(table().values, ElementsAre(1, 2, 0, 3, 4, 1, 5, 6.5, 2));
  const auto refused = [](std::string_view text) { return refusal([&] { formats::parse_numbers(text, "t.csv"); }); };
  EXPECT_EQ(refused("1,2\n3\n"), "t.csv:2: found 1 numbers, expected 2 as in the first row");
  EXPECT_EQ(refused("1,2\n3,x\n"), "t.csv:2: found \"x\", expected a finite number");
  EXPECT_EQ(refused("1,inf\n"), "t.csv:1: found \"inf\", expected a finite number");
  EXPECT_EQ(refused("1,\n"), "t.csv:1: found \"\", expected a finite number");
  EXPECT_EQ(refused("a,b\n\n"), "t.csv: found no row of numbers");
}

TEST(NumberReader, FillsWhatIsDeclared) {
  const NumberReader reader(table(), {.shuffle = false, .classes = 3});
  std::vector<float> features(8, -1.0f);
  std::vector<std::int32_t> targets(4, -9), samples(4, -9);
  BatchView batch{.rows = 4};
  batch.add("features", features).add("targets", targets).add("samples", samples);
  EXPECT_EQ(reader.samples_per_epoch(), 3);
  EXPECT_EQ(reader.read({1, 3}, batch), 3);
  EXPECT_THAT(features, ElementsAre(3, 4, 5, 6.5, 1, 2, 0, 0));
  EXPECT_THAT(targets, ElementsAre(1, 2, 0, kIgnored));
  EXPECT_THAT(samples, ElementsAre(1, 2, 3, kPadding));
}

TEST(NumberReader, CountsTargetsThatARankDoesNotRead) {
  const NumberReader reader(table(), {.targets = 2});
  std::vector<float> features(3);
  EXPECT_EQ(reader.read({0, 3}, BatchView{.rows = 3}.add("features", features)), 6);
}

TEST(NumberReader, ShufflesEveryEpochByItsSeed) {
  std::string text;
  for (int row = 0; row < 50; ++row) text += std::to_string(row) + ",0\n";
  const NumberReader reader(formats::parse_numbers(text, "t.csv"), {.seed = 3});
  std::vector<float> epochs(100), targets(100);
  reader.read({0, 100}, BatchView{.rows = 100}.add("features", epochs).add("targets", targets));
  const std::vector<float> first(epochs.begin(), epochs.begin() + 50), second(epochs.begin() + 50, epochs.end());
  EXPECT_EQ(std::set<float>(first.begin(), first.end()).size(), 50u);
  EXPECT_NE(first, second);
}

TEST(NumberReader, BadInputIsRefused) {
  EXPECT_THAT(refusal([] { NumberReader(table(), {.classes = 2}); }),
              HasSubstr("row 3 has 2 in its last column, expected a class from 0 to 1"));
  EXPECT_THAT(refusal([] { NumberReader(table(), {.targets = 3}); }), HasSubstr("expected features and 3 targets behind them"));
  const NumberReader reader(table(), {});
  std::vector<float> some(9);
  std::vector<std::int32_t> ids(3);
  EXPECT_THAT(refusal([&] { reader.read({0, 3}, BatchView{.rows = 3}.add("features", some)); }),
              HasSubstr("but the model reads 3 of them"));
  EXPECT_THAT(refusal([&] { reader.read({0, 3}, BatchView{.rows = 3}.add("tokens", ids)); }), HasSubstr("the model reads \"tokens\""));
  EXPECT_THAT(refusal([&] { reader.read({0, 2}, BatchView{.rows = 3}.add("targets", std::span(some).first(3))); }),
              HasSubstr("found 2 rows for a micro-batch of 3"));
}

}  // namespace
}  // namespace plimsoll::data
