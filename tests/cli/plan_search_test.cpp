// `plimsoll plan --cluster` and `"strategy": "auto"` as their user meets them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class PlanSearch : public testing::Test {
 protected:
  Ended plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"plan", "run.json"});
    return folder_.plimsoll(arguments);
  }

  RunFolder folder_;
};

TEST_F(PlanSearch, ListsCandidatesBestFirst) {
  const Ended ended = plan({"--cluster", "dgx-h100", "--json", "--set", "model.layers=4", "--set", "batch.global=16", "--tokens", "1e9"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output", {.strict = true});
  const base::Json& candidates = json.at("candidates");
  ASSERT_GE(candidates.size(), 2u);
  double before = 0.0;
  for (const base::Json& candidate : candidates.as_array()) {
    EXPECT_TRUE(candidate.at("fits").as_bool());
    EXPECT_GE(candidate.at("step_seconds").as_double(), before);
    before = candidate.at("step_seconds").as_double();
    EXPECT_NEAR(candidate.at("tokens_per_second").as_double() * before, 16.0 * 16.0, 1e-6);
    for (const char* key : {"strategy", "model_tflops_per_device", "hardware_tflops_per_device", "bubble_fraction", "peak_bytes"})
      EXPECT_NE(candidate.as_object().find(key), nullptr) << key;
    // Every candidate is a run file's strategy: it can be given back.
    EXPECT_EQ(candidate.at("settings").at("data").as_integer() * candidate.at("settings").at("tensor").as_integer() *
                  candidate.at("settings").at("pipe").as_integer(),
              8);
  }
  EXPECT_GT(json.at("rejected").size(), 0u);
  EXPECT_GT(json.at("whole_run").at("days").as_double(), 0.0);
  EXPECT_TRUE(json.at("complete").as_bool());
}

// Failures are asked about with or without a whole training; where checkpoints go and how long a restart takes are the caller's to say.
TEST_F(PlanSearch, FailuresCostWhatStorageAndRestartSay) {
  const std::vector<std::string> sizes{"--cluster",       "dgx-a100-80g:2", "--set",          "model=gpt2-xl", "--set",
                                       "batch.global=64", "--set",          "precision=bf16", "--mtbf",        "2000"};
  const auto asked = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sizes.begin(), sizes.end());
    more.emplace_back("--json");
    return base::parse_json(plan(more).out, "plan").at("whole_run");
  };
  const base::Json assumed = asked({});
  EXPECT_EQ(assumed.find("days"), nullptr);
  EXPECT_EQ(assumed.at("storage_bytes_per_second").as_double(), 2e9);
  EXPECT_EQ(assumed.at("restart_seconds").as_double(), 300.0);
  const double bytes = assumed.at("checkpoint_bytes").as_double();
  EXPECT_NEAR(bytes / 1.5577e9, 14.0, 0.2) << "of a parameter: bf16, f32 and two moments";
  const base::Json given = asked({"--storage", "4GB", "--restart", "900", "--tokens", "1e9"});
  EXPECT_NEAR(given.at("save_seconds").as_double(), bytes / 4e9, 1e-6);
  EXPECT_EQ(given.at("restart_seconds").as_double(), 900.0);
  EXPECT_GT(given.at("days").as_double(), 0.0);
  EXPECT_LT(given.at("save_every_seconds").as_double(), assumed.at("save_every_seconds").as_double()) << "shorter saves come more often";
  EXPECT_LT(given.at("effective_share").as_double(), 1.0);
}

// An estimate is not the last word: what the simulator rates faster beside a row takes its place, and its bytes are those of the plan.
TEST_F(PlanSearch, TheSimulatorDecidesBetweenWhatLiesBeside) {
  const std::vector<std::string> sizes{"--cluster", "dgx-a100-80g:4",   "--set", "model=llama-8b",    "--set", "batch.sequence=2048",
                                       "--set",     "batch.global=64",  "--set", "batch.micro=2",     "--set", "precision=bf16",
                                       "--set",     "strategy.data=16", "--set", "strategy.tensor=2", "--json"};
  std::vector<std::string> whole = sizes;
  whole.insert(whole.end(), {"--set", "strategy.keep_grads=true"});
  const base::Json open = base::parse_json(plan(sizes).out, "open").at("candidates").at(0);
  const base::Json pinned = base::parse_json(plan(whole).out, "pinned").at("candidates").at(0);
  EXPECT_TRUE(open.at("simulated").as_bool());
  EXPECT_LE(open.at("step_seconds").as_double(), 1.001 * pinned.at("step_seconds").as_double());
}

// Devices so small that states and gradients have to leave them, on several nodes: the first answer is one that `simulate` takes, with the
// same figures, and what was refused on the way is listed.
TEST_F(PlanSearch, TheFirstAnswerCanBeSimulated) {
  folder_.write("small.json", R"({"preset": "dgx-h100:2", "name": "small", "devices_per_node": 4,
    "device": {"name": "small", "memory": "70MiB", "reserve": "0B"}})");
  int answered = 0;
  for (const char* const memory : {"70MiB", "48MiB", "34MiB", "26MiB"}) {
    for (const char* const batch : {"8", "64"}) {
      const std::vector<std::string> sizes{"--cluster", "small.json",       "--set", "model.layers=4",
                                           "--set",     "model.width=256",  "--set", "model.heads=8",
                                           "--set",     "model.vocab=8000", "--set", std::string("batch.global=") + batch,
                                           "--set",     "precision=bf16",   "--set", std::string("limits.device=") + memory};
      std::vector<std::string> arguments = sizes;
      arguments.emplace_back("--json");
      const Ended ended = plan(arguments);
      if (ended.exit_code == 3) continue;
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      ++answered;
      const base::Json json = base::parse_json(ended.out, "output", {.strict = true});
      const base::Json& first = json.at("candidates").at(0);
      EXPECT_TRUE(first.at("simulated").as_bool());
      for (const base::Json& refused : json.at("refused").as_array()) EXPECT_NE(refused.at("reason").as_string(), "");
      std::vector<std::string> simulated{"simulate", "run.json"};
      simulated.insert(simulated.end(), sizes.begin(), sizes.end());
      simulated.insert(simulated.end(), {"--set", "strategy=" + base::write_json(first.at("settings")), "--set",
                                         fmt::format("batch.micro={}", first.at("micro_batch").as_integer()), "--json"});
      const Ended again = folder_.plimsoll(simulated);
      ASSERT_EQ(again.exit_code, 0) << first.at("strategy").as_string() << "\n" << again.err;
      const base::Json forecast = base::parse_json(again.out, "simulated");
      EXPECT_TRUE(forecast.at("fits").as_bool()) << first.at("strategy").as_string();
      EXPECT_NEAR(forecast.at("step_seconds").as_double(), first.at("step_seconds").as_double(), 1e-9);
    }
  }
  EXPECT_GE(answered, 3);
}

// Two machines of one processor each, with nothing but a slow network between them and no link inside.
TEST_F(PlanSearch, ProcessorsOfAClusterAreMachinesOfTheirOwn) {
  folder_.write("two.json", R"({"name": "two", "nodes": 2,
    "device": {"name": "processor", "memory": "8GiB", "rates": {"f32": 200e9}, "vector_rate": 50e9, "bandwidth": 40e9, "cores": 4},
    "host": {"memory": "8GiB", "bandwidth": 40e9},
    "links": [{"name": "wireless", "joins": "across", "bandwidth": 5e6, "latency": 2e-3, "per_node": 1}]})");
  const std::vector<std::string> sizes{"--cluster", "two.json", "--json", "--set", "model.layers=4", "--set", "model.width=128"};
  const base::Json json = base::parse_json(plan(sizes).out, "output");
  const base::Json& first = json.at("candidates").at(0);
  EXPECT_TRUE(first.at("simulated").as_bool());
  EXPECT_EQ(first.at("settings").at("tensor").as_integer(), 1) << first.at("strategy").as_string();
  EXPECT_EQ(first.at("bytes_moved").at("inside").as_double(), 0.0);
  EXPECT_GT(first.at("bytes_moved").at("across").as_double(), 0.0);
  // Four ranks are two on each: neighbours meet in the memory of their machine.
  std::vector<std::string> four = sizes;
  four.insert(four.begin(), {"simulate", "run.json", "--set", "strategy.data=4", "--set", "batch.global=8"});
  const Ended ended = folder_.plimsoll(four);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json moved = base::parse_json(ended.out, "simulated").at("bytes_moved");
  EXPECT_GT(moved.at("inside").as_double(), 0.0);
  EXPECT_GT(moved.at("across").as_double(), 0.0);
}

TEST_F(PlanSearch, RefusalsSayWhatWasInTheWay) {
  const Ended cut = plan({"--cluster", "dgx-a100-80g", "--time-limit", "0", "--set", "model.layers=4", "--set", "batch.global=16"});
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_NE(cut.err.find("--time-limit"), std::string::npos) << cut.err;
  const Ended little = plan({"--set", "strategy=auto", "--set", "limits.device=300KB"});
  EXPECT_EQ(little.exit_code, 3);
  EXPECT_NE(little.err.find("the program alone takes"), std::string::npos) << little.err;
  const Ended named = plan(
      {"--cluster", "dgx-a100-80g", "--planner", "2bw", "--set", "model.layers=1", "--set", "batch.global=8", "--set", "batch.micro=2"});
  EXPECT_EQ(named.exit_code, 3);
  EXPECT_NE(named.err.find("1 layers and batches of 8 samples to 8 devices"), std::string::npos) << named.err;
}

// Neither 8 samples nor 2 layers with an embedding and a head can be dealt out to 5 ranks, but heads can, if not evenly. Stages of the ends
// alone are stages.
TEST_F(PlanSearch, HeadsThatDoNotComeOutEvenAreDealtOutWhereNothingElseIs) {
  const Ended ended = plan({"--cluster", "dgx-a100-80g", "--ranks", "5", "--json", "--set", "model.layers=2", "--set", "model.heads=6",
                            "--set", "model.width=48", "--set", "batch.global=8"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(base::parse_json(ended.out, "output").at("candidates").at(0).at("settings").at("tensor").as_integer(), 5);
  const Ended stages = plan({"--cluster", "dgx-a100-80g", "--ranks", "4", "--json", "--set", "model.layers=2", "--set", "model.heads=1",
                             "--set", "batch.global=1", "--set", "batch.micro=1"});
  ASSERT_EQ(stages.exit_code, 0) << stages.err;
  EXPECT_EQ(base::parse_json(stages.out, "output").at("candidates").at(0).at("settings").at("pipe").as_integer(), 4);
}

TEST_F(PlanSearch, BruteForceFindsTheSame) {
  const std::vector<std::string> arguments{"--cluster",      "dgx-a100-80g", "--ranks",       "4", "--json", "--set",
                                           "model.layers=4", "--set",        "batch.global=8"};
  std::vector<std::string> brute = arguments;
  brute.insert(brute.end(), {"--planner", "brute"});
  const base::Json ours = base::parse_json(plan(arguments).out, "ours");
  const base::Json all = base::parse_json(plan(brute).out, "brute");
  EXPECT_EQ(ours.at("candidates").at(0).at("step_seconds").as_double(), all.at("candidates").at(0).at("step_seconds").as_double());
}

TEST_F(PlanSearch, OtherPlannersStandBesideOurs) {
  for (const char* name : {"pipedream", "2bw", "piper", "flexflow", "alpa-inter"}) {
    const Ended ended = plan({"--cluster", "dgx-h100", "--planner", name, "--json", "--set", "model.layers=4", "--set", "batch.global=32"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const base::Json json = base::parse_json(ended.out, "output");
    EXPECT_EQ(json.at("named").at("planner").as_string(), name);
    EXPECT_GT(json.at("named").at("batch_seconds").as_double(), 0.0);
    EXPECT_NE(json.at("named").at("stages").as_string().find("layers 1-"), std::string::npos);
    EXPECT_TRUE(json.at("named").as_object().find("step_seconds") != nullptr || json.at("named").as_object().find("reason") != nullptr);
  }
}

// What another planner chooses becomes a plan of ours: its settings, given to `simulate`, take the time that is shown.
TEST_F(PlanSearch, WhatOthersChooseIsSimulated) {
  const std::vector<std::string> sizes{"--set", "model.layers=5", "--set", "batch.global=24", "--set", "model.tied=false"};
  std::vector<std::string> arguments{"--cluster", "dgx-h100", "--ranks", "3", "--planner", "piper", "--json"};
  arguments.insert(arguments.end(), sizes.begin(), sizes.end());
  const Ended ended = plan(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json named = base::parse_json(ended.out, "output").at("named");
  ASSERT_NE(named.as_object().find("step_seconds"), nullptr) << ended.out;
  std::vector<std::string> again{"simulate",
                                 "run.json",
                                 "--cluster",
                                 "dgx-h100",
                                 "--json",
                                 "--set",
                                 "strategy=" + base::write_json(named.at("settings")),
                                 "--set",
                                 fmt::format("batch.micro={}", named.at("micro_batch").as_integer())};
  again.insert(again.end(), sizes.begin(), sizes.end());
  const Ended simulated = folder_.plimsoll(again);
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_EQ(base::parse_json(simulated.out, "simulated").at("step_seconds").as_double(), named.at("step_seconds").as_double());
}

TEST_F(PlanSearch, SaysWhyNeighboursLost) {
  const Ended ended = plan({"--cluster", "dgx-h100:2", "--set", "model.layers=4", "--set", "batch.global=64"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* part : {"16 ranks of \"dgx-h100\"", "tokens/s", "beside the best:", "slower"})
    EXPECT_NE(ended.out.find(part), std::string::npos) << part << "\n" << ended.out;
}

// A row behind the first that is simulated from an outline says so: `simulate` makes its plan, which makes a little more again.
TEST_F(PlanSearch, RowsOfOutlinesSaySo) {
  const std::vector<std::string> sizes{"--set", "model.layers=8",  "--set", "model.width=256",       "--set", "model.heads=8",
                                       "--set", "batch.global=16", "--set", "limits.device=40MiB",   "--set", "strategy.recompute=optimal",
                                       "--set", "batch.micro=2",   "--set", "strategy.schedule=1f1b"};
  std::vector<std::string> arguments{"--cluster", "dgx-h100", "--ranks", "4", "--json"};
  arguments.insert(arguments.end(), sizes.begin(), sizes.end());
  const Ended ended = plan(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output");
  EXPECT_EQ(json.at("candidates").at(0).at("simulated_from").as_string(), "plan");
  int outlines = 0;
  for (const base::Json& row : json.at("candidates").as_array()) {
    if (!row.at("simulated").as_bool()) continue;
    const bool of_outline = row.at("simulated_from").as_string() == "outline";
    outlines += of_outline ? 1 : 0;
    if (of_outline) continue;
    std::vector<std::string> simulate{"simulate", "run.json", "--cluster", "dgx-h100", "--json"};
    simulate.insert(simulate.end(), sizes.begin(), sizes.end());
    simulate.insert(simulate.end(), {"--set", "strategy=" + base::write_json(row.at("settings"))});
    const Ended again = folder_.plimsoll(simulate);
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_NEAR(base::parse_json(again.out, "simulated").at("step_seconds").as_double(), row.at("step_seconds").as_double(), 1e-9);
  }
  EXPECT_GT(outlines, 0) << ended.out;
}

// Verdicts compare with the figure that the first row shows, which is the simulator's.
TEST_F(PlanSearch, VerdictsSpeakOfTheBubbleThatIsShown) {
  const Ended ended =
      plan({"--cluster", "dgx-h100", "--ranks", "4", "--json", "--set", "model.layers=8", "--set", "model.width=256", "--set",
            "batch.global=16", "--set", "batch.micro=1", "--set", "strategy.pipe=4", "--set", "strategy.chunks=1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json json = base::parse_json(ended.out, "output");
  const std::string shown = fmt::format("instead of {:.1f}%", 100.0 * json.at("candidates").at(0).at("bubble_fraction").as_double());
  int compared = 0;
  for (const base::Json& verdict : json.at("rejected").as_array()) {
    const std::string& words = verdict.at("verdict").as_string();
    if (words.find("waits in the pipeline") == std::string::npos) continue;
    ++compared;
    EXPECT_NE(words.find(shown), std::string::npos) << words << ", shown " << shown;
    EXPECT_NE(words.find(fmt::format("{:.1f}% of the passes", 100.0 * verdict.at("bubble_fraction").as_double())), std::string::npos)
        << words;
  }
  EXPECT_GT(compared, 0) << ended.out;
}

TEST_F(PlanSearch, LargestModelAndSmallestCluster) {
  const Ended largest =
      plan({"--cluster", "dgx-h100", "--ranks", "2", "--largest", "--floor", "0", "--json", "--set", "limits.device=8MiB"});
  ASSERT_EQ(largest.exit_code, 0) << largest.err;
  const base::Json json = base::parse_json(largest.out, "largest");
  EXPECT_GT(json.at("parameters").as_integer(), 10'000);
  EXPECT_GT(json.at("step_seconds").as_double(), 0.0);
  EXPECT_GT(json.at("peak_bytes").at("device").as_integer(), 0);
  EXPECT_LE(json.at("peak_bytes").at("device").as_integer(), 8 << 20);
  const Ended smallest = plan({"--cluster", "dgx-h100", "--smallest", "--json"});
  ASSERT_EQ(smallest.exit_code, 0) << smallest.err;
  EXPECT_EQ(base::parse_json(smallest.out, "smallest").at("nodes").as_integer(), 1);
}

// However much a drive could hold, a model that keeps the devices waiting is not one that they can train.
TEST_F(PlanSearch, TheLargestModelHasAFloorOfSpeed) {
  const auto parameters = [&](const std::string& floor) {
    const Ended ended = plan({"--cluster", "dgx-h100", "--largest", "--json", "--floor", floor, "--set", "model={\"preset\":\"gpt2\"}",
                              "--set", "batch.global=64", "--set", "batch.sequence=512", "--set", "precision=bf16"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return base::parse_json(ended.out, "largest").at("parameters").as_integer();
  };
  const std::int64_t any = parameters("0");
  const std::int64_t slow = parameters("0.05");
  const std::int64_t fast = parameters("0.3");
  EXPECT_GT(any, slow);
  EXPECT_GE(slow, fast);
  EXPECT_GT(fast, 100'000'000);
}

// Where drives hold any model, the length of a step is what says how large one can be trained; the answer shows it, and where things are.
TEST_F(PlanSearch, TheLargestModelHasALongestStep) {
  const auto largest = [&](const std::string& seconds, bool json) {
    std::vector<std::string> arguments{"--cluster",
                                       "dgx-h100",
                                       "--ranks",
                                       "1",
                                       "--largest",
                                       "--floor",
                                       "0",
                                       "--longest-step",
                                       seconds,
                                       "--set",
                                       "model=llama-1b",
                                       "--set",
                                       "batch.global=8",
                                       "--set",
                                       "batch.sequence=512",
                                       "--set",
                                       "precision=bf16"};
    if (json) arguments.emplace_back("--json");
    const Ended ended = plan(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  std::int64_t before = 0;
  for (const char* const seconds : {"0.02", "0.1", "0.5"}) {
    const base::Json json = base::parse_json(largest(seconds, true), "largest");
    EXPECT_GT(json.at("parameters").as_integer(), before) << seconds;
    EXPECT_LE(json.at("step_seconds").as_double(), std::stod(seconds));
    before = json.at("parameters").as_integer();
  }
  const std::string text = largest("0.1", false);
  for (const char* const part : {"  step  ", "tokens/s", "on the device", "micro-batch"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Ended none = plan({"--cluster", "dgx-h100", "--ranks", "1", "--largest", "--longest-step", "1e-9"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_NE(none.err.find("--longest-step"), std::string::npos) << none.err;
}

// Every option of every question is answered or refused.
TEST_F(PlanSearch, NoOptionIsPassedOver) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> options{
      {"--out", {"--out", "x.out"}},
      {"--html", {"--html", "x.html"}},
      {"--full", {"--full"}},
      {"--svg", {"--svg", "x.svg"}},
      {"--cluster", {"--cluster", "dgx-h100"}},
      {"--planner", {"--planner", "brute"}},
      {"--time-limit", {"--time-limit", "30"}},
      {"--floor", {"--floor", "0.1"}},
      {"--longest-step", {"--longest-step", "60"}},
      {"--tokens", {"--tokens", "1e9"}},
      {"--price", {"--price", "2"}},
      {"--co2", {"--co2", "0.1"}},
      {"--mtbf", {"--mtbf", "1000"}},
      {"--storage", {"--storage", "1GB"}},
      {"--restart", {"--restart", "60"}},
      {"--passes", {"--passes"}},
      {"--schedule", {"--schedule", "1f1b"}},
      {"--largest", {"--largest"}},
      {"--smallest", {"--smallest"}},
      {"--ranks", {"--ranks", "2"}},
      {"--json", {"--json"}},
  };
  struct Asked {
    std::vector<std::string> question;
    std::set<std::string> takes;
  };
  const std::vector<Asked> questions{
      {{}, {"--out", "--html", "--full", "--cluster", "--passes", "--schedule", "--ranks", "--json"}},
      {{"--passes"}, {"--full", "--ranks", "--json"}},
      {{"--schedule", "gpipe"}, {"--out", "--svg", "--ranks", "--json", "--schedule"}},
      {{"--cluster", "dgx-h100"},
       {"--out", "--html", "--full", "--planner", "--time-limit", "--tokens", "--mtbf", "--largest", "--smallest", "--ranks", "--json"}},
      {{"--cluster", "dgx-h100", "--tokens", "1e9", "--mtbf", "1000"},
       {"--out", "--html", "--full", "--planner", "--time-limit", "--price", "--co2", "--storage", "--restart", "--ranks", "--json"}},
      {{"--cluster", "dgx-h100", "--largest", "--ranks", "1", "--longest-step", "0.01", "--floor", "0"}, {"--time-limit", "--json"}},
      {{"--cluster", "dgx-h100", "--smallest"}, {"--json"}},
  };
  for (const Asked& asked : questions) {
    for (const auto& [name, words] : options) {
      if (std::find(asked.question.begin(), asked.question.end(), name) != asked.question.end()) continue;
      std::vector<std::string> arguments = asked.question;
      arguments.insert(arguments.end(), words.begin(), words.end());
      arguments.insert(arguments.end(), {"--set", "model.layers=4", "--set", "batch.global=16"});
      const Ended ended = plan(arguments);
      SCOPED_TRACE(ended.err);
      EXPECT_EQ(ended.exit_code, asked.takes.contains(name) ? 0 : 2)
          << name << " with " << (asked.question.empty() ? "nothing" : asked.question.back());
    }
  }
  const Ended full = plan({"--cluster", "dgx-h100", "--ranks", "2", "--full"});
  EXPECT_NE(full.out.find("procedure"), std::string::npos) << full.out;
  EXPECT_EQ(plan({"--full", "--json"}).exit_code, 2);
  EXPECT_NE(folder_.plimsoll({"simulate", "run.json", "--cluster", "dgx-h100", "--seed", "3"}).exit_code, 0);
}

TEST_F(PlanSearch, WritesThePlanOfTheBest) {
  const Ended ended = plan({"--cluster", "dgx-h100", "--ranks", "2", "--set", "batch.global=4", "--out", "best.plan"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended read = folder_.plimsoll({"inspect", "best.plan"});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_NE(read.out.find("device arena"), std::string::npos) << read.out;
}

TEST_F(PlanSearch, RefusesWhatItWouldNotAnswer) {
  const auto refusal = [&](const std::vector<std::string>& arguments, int exit_code) {
    const Ended ended = plan(arguments);
    EXPECT_EQ(ended.exit_code, exit_code) << ended.out;
    return ended.err;
  };
  EXPECT_NE(refusal({"--cluster", "dgx-h100", "--largest", "--smallest"}, 2).find("give one"), std::string::npos);
  EXPECT_NE(refusal({"--cluster", "dgx-h100", "--smallest", "--out", "best.plan"}, 2).find("found --out"), std::string::npos);
  EXPECT_NE(refusal({"--cluster", "dgx-h100", "--schedule", "1f1b"}, 2).find("give one"), std::string::npos);
  EXPECT_NE(refusal({"--cluster", "dgx-a100-80g", "--set", "precision=fp8"}, 3).find("expected one of f32, bf16, fp16"), std::string::npos);
  EXPECT_NE(refusal({"--cluster", "dgx2-v100-32g", "--set", "precision=bf16"}, 3).find("expected one of f32, fp16"), std::string::npos);
  const Ended simulated = folder_.plimsoll({"simulate", "run.json", "--cluster", "dgx-a100-80g", "--set", "precision=fp8"});
  EXPECT_EQ(simulated.exit_code, 3);
}

TEST_F(PlanSearch, ARunMayLeaveItsStrategyOpen) {
  const Ended ended = folder_.plimsoll({"train", "run.json", "--set", "strategy=\"auto\"", "--ranks", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("planned for 2 ranks here: "), std::string::npos) << ended.out;
  const base::Json decision = base::parse_json(folder_.read("out/decision.json"), "decision", {.strict = true});
  EXPECT_EQ(decision.at("ranks").as_integer(), 2);
  // What was stored as run is what was decided.
  const base::Json run = base::parse_json(folder_.read("out/run.json"), "run");
  const base::Json& strategy = run.at("strategy");
  EXPECT_EQ(strategy.at("data").as_integer() * strategy.at("tensor").as_integer() * strategy.at("pipe").as_integer(), 2);
}

TEST_F(PlanSearch, WrongInputIsRefused) {
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::vector<std::string>& parts) {
    const Ended ended = plan(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << part << " in: " << ended.err;
  };
  refused({"--cluster", "dgx-h200"}, 2, {"dgx-h200", "did you mean"});
  refused({"--cluster", "dgx-h100", "--ranks", "9"}, 3, {"9 ranks", "8"});
  refused({"--cluster", "dgx-h100", "--set", "strategy.tensor=4", "--set", "strategy.pipe=4"}, 3, {"\"tensor\": 4", "\"pipe\": 4"});
  refused({"--set", "strategy=\"auto\"", "--set", "limits.device=1KiB"}, 3, {"the program alone takes", "use a larger limit"});
  refused({"--cluster", "dgx-h100", "--ranks", "1", "--set", "limits.device=1KiB"}, 3, {"no strategy fits", "use a smaller model"});
  refused({"--cluster", "dgx-h100", "--ranks", "1", "--set", "limits.device=1KiB"}, 3, {"no strategy fits", "the least is"});
}

}  // namespace
}  // namespace plimsoll::tests
