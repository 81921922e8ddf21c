// A user's schedule file: what is read, and what is said about what cannot be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"
#include "strategy/schedules/verify.h"

namespace plimsoll::strategy::schedules {
namespace {

const Shape kShape{.ranks = 2, .micro_batches = 1};

constexpr std::string_view kGood =
    "# there and back\n"
    "stage, rank, work, micro_batch\r\n"
    "\n"
    "0,0,forward,0\n"
    "1,1,forward,0\n"
    " 1, 1 ,backward,0\n"
    "0,0,backward,0";

std::string refusal(std::string_view text, const Shape& shape = kShape) {
  try {
    parse_csv(text, "my.csv", shape);
    return "accepted";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
}

TEST(Csv, ColumnsInAnyOrderCommentsAndSpaces) {
  const Schedule schedule = parse_csv(kGood, "my.csv", kShape);
  EXPECT_EQ(short_names(schedule.ranks[0]), "F0.0 B0.0 U1");
  EXPECT_EQ(short_names(schedule.ranks[1]), "F1.0 B1.0 U1");
  EXPECT_EQ(problems_of(schedule), std::vector<std::string>{});
  EXPECT_EQ(schedule.ranks, build("naive", kShape).ranks);
}

TEST(Csv, Writes) {
  EXPECT_EQ(write_csv(build("naive", {.ranks = 1, .micro_batches = 1})),
            "rank,work,stage,micro_batch,version,joined\n0,forward,0,0,0,0\n0,backward,0,0,0,0\n0,update,,,1,0\n");
}

// Stages to and fro (0 on rank 0, 1 and 2 on rank 1, 3 on rank 0): a placement that no built-in schedule has.
TEST(Csv, PlacementIsReadFromTheFile) {
  std::string text = "rank,work,stage,micro_batch\n";
  for (int stage : {0, 1, 2, 3}) text += fmt::format("{},forward,{},0\n", stage == 0 || stage == 3 ? 0 : 1, stage);
  for (int stage : {3, 2, 1, 0}) text += fmt::format("{},backward,{},0\n", stage == 0 || stage == 3 ? 0 : 1, stage);
  const Schedule schedule = parse_csv(text, "v.csv", {.ranks = 2, .micro_batches = 1, .chunks = 2});
  EXPECT_EQ(schedule.placement, Placement::vee);
  EXPECT_EQ(problems_of(schedule), std::vector<std::string>{});
}

TEST(Csv, WrongFirstLine) {
  EXPECT_EQ(refusal("rank,wrok,stage,micro_batch\n"),
            "my.csv: line 1, column 6: found a column \"wrok\", expected rank, work, stage, micro_batch, version, joined; did you mean "
            "\"work\"?");
  EXPECT_EQ(refusal("rank,work,stage\n"),
            "my.csv: line 1, column 1: found no column \"micro_batch\", expected rank, work, stage, micro_batch, version, joined");
  EXPECT_EQ(refusal("rank,rank,stage\n"), "my.csv: line 1, column 6: found the column \"rank\" twice, expected it once");
  EXPECT_NE(refusal("# nothing\n").find("found no line with columns"), std::string::npos);
  EXPECT_NE(refusal("").find("found no line with columns"), std::string::npos);
}

TEST(Csv, WrongLines) {
  const auto line = [](std::string_view text) { return refusal(fmt::format("rank,work,stage,micro_batch\n{}\n", text)); };
  EXPECT_EQ(
      line("0,foward,0,0"),
      "my.csv: line 2, column 3: found \"foward\" as \"work\", expected forward, backward, backward_input, backward_weight, recompute, "
      "update; did you mean \"forward\"?");
  EXPECT_EQ(line("2,forward,0,0"), "my.csv: line 2, column 1: found \"2\" as \"rank\", expected a number from 0 to 1");
  EXPECT_EQ(line("0,forward,2,0"), "my.csv: line 2, column 11: found \"2\" as \"stage\", expected a number from 0 to 1");
  EXPECT_EQ(line("0,forward,,0"), "my.csv: line 2, column 11: found \"\" as \"stage\", expected a number from 0 to 1");
  EXPECT_EQ(line("0,forward,0x,0"), "my.csv: line 2, column 11: found \"0x\" as \"stage\", expected a number from 0 to 1");
  EXPECT_EQ(line("0,forward,0,1"), "my.csv: line 2, column 13: found 1 as \"micro_batch\", expected 0 to 0: 1 micro-batches in 1 batch");
  EXPECT_EQ(line("0,forward,0"), "my.csv: line 2, column 1: found 3 columns, expected 4 as in the first line");
  EXPECT_EQ(line("0,update,0,"),
            "my.csv: line 2, column 10: found \"0\" as \"stage\", expected nothing: an update is for all of a rank's stages");
  EXPECT_NE(line("99999999999999999999,forward,0,0").find("expected a number from 0 to 1"), std::string::npos);
  EXPECT_NE(line("\x1b[31m,forward,0,0").find("found \"?[31m\" as \"rank\""), std::string::npos);
}

TEST(Csv, AFileThatReadsWellMayStillBeRefused) {
  std::string text(kGood);
  text.resize(text.rfind('\n'));
  try {
    require_valid(parse_csv(text, "my.csv", kShape));
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_STREQ(error.what(), "the schedule \"my.csv\" cannot be run: rank 0: no backward of micro-batch 0 in stage 0");
  }
}

// One update too many is told of where it is, not as a batch that all ranks lack.
TEST(Csv, AnUpdateTooManyIsThatOfItsRank) {
  const std::string text = write_csv(build("1f1b", {.ranks = 2, .micro_batches = 2})) + "1,update,,,2,0\n";
  const std::vector<std::string> problems = problems_of(parse_csv(text, "my.csv", {.ranks = 2, .micro_batches = 2}));
  EXPECT_EQ(problems, std::vector<std::string>{"rank 1, item 5 (update to version 2): version 2 of 1 batches, expected 0 to 1"});
}

TEST(Csv, AFileForFewerMicroBatches) {
  for (std::string_view name : {"1f1b", "zb-h1", "dualpipe"}) {
    const std::string text = write_csv(build(name, {.ranks = 2, .micro_batches = 4}));
    EXPECT_EQ(problems_of(parse_csv(text, "my.csv", {.ranks = 2, .micro_batches = 4})), std::vector<std::string>{}) << name;
    try {
      parse_csv(text, "my.csv", {.ranks = 2, .micro_batches = 6});
      FAIL() << name;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.exit_code(), 3);
      EXPECT_STREQ(error.what(),
                   "the schedule \"my.csv\" cannot be run: found orders for 4 micro-batches, expected 6, as many as a step of this run "
                   "has; use another \"batch.global\" or \"batch.micro\", or a file for 6");
    }
  }
}

TEST(Csv, AFileOfASpreadsheet) {
  EXPECT_EQ(parse_csv("\xEF\xBB\xBFrank,work,stage,micro_batch\r\n0,forward,0,0\r\n0,backward,0,0\r\n", "my.csv", {}).ranks,
            build("naive", {}).ranks);
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
