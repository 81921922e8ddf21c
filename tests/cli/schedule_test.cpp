// `plimsoll plan --schedule` as its user meets it.
#include <map>

#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class Schedule : public testing::Test {
 protected:
  // The tiny run on four pipeline ranks with eight micro-batches.
  Ended plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"plan", "run.json", "--set", "strategy.pipe=4", "--set", "batch.global=16"});
    return folder_.plimsoll(arguments);
  }

  void expect_refusal(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& parts) {
    const std::vector<std::string> before = folder_.files();
    const Ended ended = plan(arguments);
    SCOPED_TRACE(ended.err);
    EXPECT_EQ(ended.exit_code, exit_code);
    EXPECT_TRUE(ended.out.empty());
    for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << "expected: " << part;
    EXPECT_EQ(folder_.files(), before);
  }

  RunFolder folder_;
};

TEST_F(Schedule, IsDrawnThoughItCannotBeRunHere) {
  const Ended ended = plan({"--schedule", "gpipe,1f1b,interleaved", "--svg", "drawn.svg"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* part : {"4 pipeline ranks, 8 micro-batches", "bubble 27.3%", "bubble 15.8% = (p-1)/(vm+p-1)",
                           "holds at most 4 micro-batches", "2.00 KiB", "48 messages a step, 96.0 KiB"})
    EXPECT_NE(ended.out.find(part), std::string::npos) << part << "\n" << ended.out;
  EXPECT_EQ(ended.out.find('\x1b'), std::string::npos) << "escape codes in a file";
  EXPECT_TRUE(folder_.read("drawn.svg").starts_with("<svg "));
}

TEST_F(Schedule, PassesAreListedInOrderWithThoseThatHaveWork) {
  const Ended ended = plan({"--passes", "--json", "--set", "strategy.schedule=zb-h1", "--set", "model.layers=4"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output");
  std::map<std::string, bool> ran;
  for (const base::Json& pass : json.at("passes").as_array()) ran[pass.at("name").as_string()] = pass.at("ran").as_bool();
  EXPECT_EQ(json.at("passes").at(0).at("name").as_string(), "freeze");
  EXPECT_TRUE(ran.at("differentiate"));
  EXPECT_TRUE(ran.at("update"));
  EXPECT_FALSE(ran.at("freeze"));
  EXPECT_FALSE(ran.at("store_frozen"));
  EXPECT_TRUE(ran.at("split_pipe"));
  EXPECT_TRUE(ran.at("split_backward"));
  EXPECT_FALSE(ran.at("split_tensor"));
  EXPECT_FALSE(ran.at("offload"));
  const Ended text = plan({"--passes", "--set", "model.layers=4"});
  EXPECT_NE(text.out.find("* split_pipe "), std::string::npos) << text.out;
  // Those that build the training graph come before those that make the graph of a rank.
  const std::size_t built = text.out.find("\n* update ");
  ASSERT_NE(built, std::string::npos) << text.out;
  EXPECT_GT(built, text.out.find("\n* differentiate ")) << text.out;
  EXPECT_LT(built, text.out.find("* split_pipe ")) << text.out;
  EXPECT_NE(text.out.find("\n  offload "), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("==== after"), std::string::npos) << text.out;
  const Ended full = plan({"--passes", "--full", "--set", "model.layers=4"});
  const std::size_t after = full.out.find("\n==== after split_pipe\n\n");
  ASSERT_NE(after, std::string::npos) << full.out;
  EXPECT_NE(full.out.find("\nforward embed:\n", after), std::string::npos) << full.out;
  EXPECT_EQ(full.out.find("==== after offload"), std::string::npos) << full.out;
  expect_refusal({"--passes", "--schedule", "1f1b"}, 2, {"--passes", "leave out --cluster and --schedule"});
}

TEST_F(Schedule, AsJson) {
  const Ended ended = plan({"--schedule", "1f1b", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output");
  const base::Json& one = json.at("schedules").at(0);
  EXPECT_NEAR(one.at("bubble_fraction").as_double(), 3.0 / 11.0, 1e-12);
  EXPECT_EQ(one.at("peak_live_stages").at(0).as_integer(), 4);
  EXPECT_EQ(one.at("message_bytes").as_integer(), 2 * 16 * 16 * 4);
  EXPECT_EQ(one.at("bytes_sent").as_integer(), 48 * 2 * 16 * 16 * 4);
  EXPECT_EQ(one.at("bytes_saved").as_integer(), 0);
}

// Of what all tensor ranks have, each sends its rows, unless told to send all.
TEST_F(Schedule, ShowsWhatScatteredBoundariesSave) {
  const Ended scattered = plan({"--schedule", "1f1b", "--set", "strategy.tensor=2"});
  ASSERT_EQ(scattered.exit_code, 0) << scattered.err;
  EXPECT_NE(scattered.out.find("sends its rows of a message alone, which saves 2.00 KiB of 4.00 KiB"), std::string::npos) << scattered.out;
  EXPECT_NE(scattered.out.find("48 messages a step, 96.0 KiB"), std::string::npos) << scattered.out;
  const Ended whole = plan({"--schedule", "1f1b", "--set", "strategy.tensor=2", "--set", "strategy.scatter_boundaries=false", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const base::Json json = base::parse_json(whole.out, "output");
  EXPECT_EQ(json.at("schedules").at(0).at("bytes_sent").as_integer(), 2 * 48 * 2 * 16 * 16 * 4);
  EXPECT_EQ(json.at("schedules").at(0).at("bytes_saved").as_integer(), 0);
  const std::string uneven = R"(strategy.stages=[{"blocks":1,"tensor":2},1,1,1])";
  const Ended without = plan({"--schedule", "1f1b", "--set", uneven, "--json"});
  ASSERT_EQ(without.exit_code, 0) << without.err;
  EXPECT_TRUE(base::parse_json(without.out, "output").at("schedules").at(0).at("bytes_sent").is_null()) << without.out;
}

// What ranks wait is a share of the step that is shown: bubble and length agree for every schedule. Of a step with its flush zb-h2 waits as
// long as zb-h1; its paper counts each rank's own time, from its first piece to its last.
TEST_F(Schedule, BubblesAreOfTheStepThatIsShown) {
  const Ended ended = plan({"--schedule", "gpipe,1f1b,interleaved,zb-h1,zb-h2,pipedream,2bw", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output");
  std::map<std::string, base::Json> by_name;
  for (const base::Json& each : json.at("schedules").as_array()) {
    by_name[each.at("schedule").as_string()] = each;
    EXPECT_NEAR(each.at("step").as_double() * (1.0 - each.at("bubble_fraction").as_double()), 8 * 3.0, 1e-9)
        << each.at("schedule").as_string();
  }
  EXPECT_EQ(by_name.at("zb-h2").at("step").as_double(), by_name.at("zb-h1").at("step").as_double());
  EXPECT_EQ(by_name.at("zb-h2").at("bubble_fraction").as_double(), by_name.at("zb-h1").at("bubble_fraction").as_double());
  EXPECT_NEAR(by_name.at("zb-h2").at("bubble_fraction_without_flush").as_double(), 0.0, 1e-12);
  EXPECT_TRUE(by_name.at("zb-h1").at("bubble_fraction_without_flush").is_null());
  EXPECT_EQ(by_name.at("pipedream").at("step").as_double(), 24.0);
  const Ended text = plan({"--schedule", "zb-h2"});
  for (const char* part : {"bubble 11.1% (0.0% from step to step without a flush)", "step  bubble"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
}

TEST_F(Schedule, GoesOutAsAFileAndComesBack) {
  ASSERT_EQ(plan({"--schedule", "zb-h1", "--out", "own.csv"}).exit_code, 0);
  const Ended back = plan({"--schedule", "own.csv"});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_NE(back.out.find("bubble 11.1%"), std::string::npos) << back.out;
}

// A stored schedule is the one that a run of that name has: as many steps to a flush, refused where the name is.
TEST_F(Schedule, StoredOnesAreThoseOfTheirNames) {
  const std::vector<std::string> loose{"--set", "model.layers=4", "--set", "model.tied=false", "--set", "optimizer.clip=0"};
  const auto with = [&](std::vector<std::string> arguments, const std::string& rounds) {
    arguments.insert(arguments.end(), loose.begin(), loose.end());
    arguments.insert(arguments.end(), {"--set", "steps=4", "--set", "eval.every=4", "--set", "checkpoint.every=4"});
    arguments.insert(arguments.end(), {"--set", "strategy.flush_every=" + rounds});
    return plan(arguments);
  };
  for (const std::string name : {"pipedream", "2bw", "zb-h2"}) {
    for (const std::string rounds : {"1", "2", "4"}) {
      SCOPED_TRACE(name + " " + rounds);
      const Ended stored = with({"--schedule", name, "--out", "own.csv"}, rounds);
      ASSERT_EQ(stored.exit_code, 0) << stored.err;
      const Ended as_file = with({"--set", "strategy.schedule=own.csv", "--json"}, rounds);
      const Ended by_name = with({"--set", "strategy.schedule=" + name, "--json"}, rounds);
      ASSERT_EQ(as_file.exit_code, 0) << as_file.err;
      ASSERT_EQ(by_name.exit_code, 0) << by_name.err;
      const std::vector<std::string> disk{
          "--set", "strategy.offload.optimizer=disk", "--set", "strategy.offload.params=disk", "--set", "limits.disk_path=.", "--json"};
      std::vector<std::string> file{"--set", "strategy.schedule=own.csv"};
      std::vector<std::string> named{"--set", "strategy.schedule=" + name};
      file.insert(file.end(), disk.begin(), disk.end());
      named.insert(named.end(), disk.begin(), disk.end());
      const int expected = rounds == "1" ? 0 : 3;
      EXPECT_EQ(with(file, rounds).exit_code, expected);
      EXPECT_EQ(with(named, rounds).exit_code, expected);
    }
  }
  const Ended refused = with({"--schedule", "1f1b", "--out", "own.csv"}, "2");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("use \"flush_every\": 1"), std::string::npos) << refused.err;
}

TEST_F(Schedule, WrongShapesAreNotLegal) {
  expect_refusal({"--schedule", "interleaved"}, 3, {"\"interleaved\"", "\"chunks\": 2"});
  expect_refusal({"--schedule", "interleaved", "--set", "strategy.chunks=2", "--set", "batch.global=12"}, 3,
                 {"found 6 micro-batches", "the nearest is 4 or 8"});
  expect_refusal({"--schedule", "1f1b", "--set", "strategy.chunks=2"}, 3, {"found \"chunks\": 2"});
  expect_refusal({"--set", "strategy.schedule=dualpipe"}, 3, {"can be drawn, but not run", "use \"zb-h1\""});
}

TEST_F(Schedule, WrongNamesAndFiles) {
  expect_refusal({"--schedule", "gpip"}, 2, {"did you mean \"gpipe\"?"});
  expect_refusal({"--schedule", "none.csv"}, 2, {"none.csv", "No such file"});
  folder_.write("odd.csv", "rank,work,stage,micro_batch\n0,forward,9,0\n");
  expect_refusal({"--schedule", "odd.csv"}, 2, {"odd.csv: line 2, column 11", "expected a number from 0 to 3"});
  folder_.write("half.csv", "rank,work,stage,micro_batch\n0,forward,0,0\n");
  expect_refusal({"--schedule", "half.csv"}, 3, {"half.csv", "rank 0: no backward of micro-batch 0 in stage 0"});
  expect_refusal({"--schedule", "gpipe,1f1b", "--out", "two.csv"}, 2, {"--out stores one schedule"});
}

}  // namespace
}  // namespace plimsoll::tests
