// What the planner expects against what lowering then makes: bytes of the fullest rank, for layouts of every kind.
#include <gtest/gtest.h>

#include <functional>

#include <fmt/format.h>

#include "base/error.h"
#include "cluster/presets.h"
#include "config/config.h"
#include "io/posix_file_system.h"
#include "plan/waterline.h"
#include "train/foresight/forecast.h"
#include "train/foresight/planning.h"
#include "train/setup/setup.h"
#include "train/setup/this_machine.h"

namespace plimsoll::tests {
namespace {

constexpr std::string_view kRun = R"({
  "model": {"family": "gpt2", "layers": 8, "width": 256, "heads": 8, "context": 256, "vocab": 2048},
  "data": {"train": "x"}, "device": "cpu",
  "batch": {"global": 16, "sequence": 128}
})";

config::Run run_with(std::string_view strategy, std::int64_t micro) {
  return config::parse_run(kRun, "run.json", {std::string("strategy=") + std::string(strategy), "batch.micro=" + std::to_string(micro)});
}

double exact_bytes(const config::Run& run) {
  const plan::Plan plan = train::plan_session(train::session_options(run, {}));
  return static_cast<double>(plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)].count);
}

double expected_bytes(const config::Run& run) {
  const planner::Problem problem = train::planning_problem(run, cluster::preset("dgx-h100"), run.strategy.ranks());
  planner::Estimator estimator(problem);
  const planner::Estimate estimate = estimator.evaluate({.strategy = run.strategy, .micro = run.batch.micro});
  EXPECT_TRUE(estimate.fits()) << estimate.reason;
  return static_cast<double>(estimate.memory.device().count);
}

TEST(Planning, ExpectsTheBytesThatLoweringGives) {
  const std::vector<std::pair<std::string_view, std::int64_t>> layouts{
      {R"({})", 16},
      {R"({})", 2},
      {R"({"recompute": "full"})", 4},
      {R"({"recompute": "selective"})", 4},
      {R"({"data": 2})", 4},
      {R"({"data": 4, "zero": 1})", 2},
      {R"({"data": 4, "zero": 2, "keep_grads": false})", 2},
      {R"({"data": 4, "zero": 3})", 2},
      {R"({"data": 4, "zero": 3, "keep_grads": false, "recompute": "full"})", 2},
      {R"({"tensor": 2})", 4},
      {R"({"tensor": 4, "sequence_parallel": true})", 4},
      {R"({"tensor": 2, "data": 2, "zero": 1})", 2},
      {R"({"pipe": 4})", 1},
      {R"({"pipe": 4, "schedule": "gpipe"})", 2},
      {R"({"pipe": 2, "chunks": 2, "schedule": "interleaved"})", 2},
      {R"({"pipe": 4, "schedule": "zb-h1"})", 1},
      {R"({"pipe": 2, "data": 2, "tensor": 2, "zero": 1, "recompute": "full"})", 1},
      {R"({"offload": {"optimizer": "host"}})", 4},
      {R"({"data": 2, "zero": 1, "offload": {"optimizer": "host"}})", 4},
      {R"({"offload": {"optimizer": "host", "params": "host"}})", 4},
      {R"({"offload": {"optimizer": "host", "params": "host", "gradients": "host"}, "recompute": "full"})", 4},
      {R"({"data": 4, "zero": 3, "keep_grads": false, "offload": {"optimizer": "host", "params": "host", "gradients": "host"}})", 2},
      {R"({"tile": 65536, "offload": {"optimizer": "host", "params": "host", "gradients": "host"}, "recompute": "full"})", 1},
      {R"({"tile": 262144, "offload": {"optimizer": "host", "params": "host", "gradients": "host"}, "recompute": "full"})", 1},
      {R"({"offload": {"activations": "host"}})", 8},
      {R"({"offload": {"activations": "host"}, "recompute": "selective"})", 8}};
  for (const auto& [strategy, micro] : layouts) {
    const config::Run run = run_with(strategy, micro);
    const double exact = exact_bytes(run);
    const double expected = expected_bytes(run);
    // Windows of what comes and goes are counted in whole blocks.
    const double tolerance = strategy.find("offload") == std::string_view::npos ? 0.1 : 0.15;
    EXPECT_NEAR(expected / exact, 1.0, tolerance)
        << strategy << ", micro-batch " << micro << ": expected " << expected << ", found " << exact;
  }
}

std::string not_legal(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.kind() == base::ErrorKind::not_legal ? error.what() : "(another kind) " + std::string(error.what());
  }
  return "(no error)";
}

// What stages keep within their memory is estimated in closed form; lowering fits it to the byte. The less there is, the longer it takes.
TEST(Planning, StagesThatKeepWhatFitsTakeAsLongAsEstimated) {
  double before = 0.0;
  for (const char* memory : {"40GiB", "11GiB", "9GiB", "8GiB"}) {
    const config::Run run = config::parse_run(
        R"({"model": {"family": "gpt2", "layers": 24, "width": 2048, "heads": 16, "context": 2048, "vocab": 51200}, "precision": "bf16",
            "batch": {"global": 32, "micro": 2, "sequence": 2048}, "data": {"train": "x"}, "device": "cpu",
            "strategy": {"data": 1, "pipe": 4, "recompute": "optimal"}})",
        "run.json", {fmt::format("limits.device=\"{}\"", memory)});
    cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
    cluster.device.memory = run.limits.device;
    cluster.device.reserve = {};
    const planner::Problem problem = train::planning_problem(run, cluster, 4);
    planner::Estimator estimator(problem);
    planner::Choice choice{.strategy = run.strategy, .micro = 2};
    const planner::Estimate estimate = estimator.evaluate(choice);
    ASSERT_TRUE(estimate.fits()) << memory << ": " << estimate.reason;
    const double simulated = train::forecast(run, cluster).step_seconds;
    EXPECT_NEAR(estimate.step_seconds / simulated, 1.0, 0.08) << memory;
    EXPECT_LE(estimator.bounds(choice).step_seconds, estimate.step_seconds);
    EXPECT_GE(estimate.step_seconds, before);
    before = estimate.step_seconds;
  }
}

// A host that updates under the next forward pass: estimates follow the simulator there, and where it may not.
TEST(Planning, UpdatesUnderTheNextForwardPassAreEstimated) {
  for (const char* gradients : {"none", "host"}) {
    double waits = 0.0;
    for (const char* carry : {"never", "auto"}) {
      const config::Run run = config::parse_run(
          R"({"model": "llama-8b", "data": {"train": "x"}, "precision": "bf16", "device": "cpu",
              "batch": {"global": 16, "micro": 2, "sequence": 4096}, "strategy": {"data": 8, "zero": 2, "recompute": "full"}})",
          "run.json",
          {fmt::format("strategy.carry_update={}", carry), fmt::format("strategy.offload.gradients={}", gradients),
           "strategy.offload.optimizer=host"});
      const cluster::Cluster cluster = cluster::preset("dgx-h100");
      const planner::Problem problem = train::planning_problem(run, cluster, 8);
      planner::Estimator estimator(problem);
      const planner::Choice choice{.strategy = run.strategy, .micro = run.batch.micro};
      const double estimated = estimator.evaluate(choice).step_seconds;
      EXPECT_NEAR(estimated / train::forecast(run, cluster).step_seconds, 1.0, 0.1) << carry << ", gradients " << gradients;
      EXPECT_LE(estimator.bounds(choice).step_seconds, estimated);
      if (waits > 0.0) {
        EXPECT_LT(estimated, waits);
      }
      waits = estimated;
    }
  }
}

// A token table that no device has room for, where nothing else may live elsewhere: its rows come from the disk, and only then.
TEST(Planning, RowsOfATableComeFromTheDiskWhereNothingElseFits) {
  const auto run_of = [](std::string_view device, std::string_view strategy) {
    return config::parse_run(
        R"({"model": {"family": "llama", "layers": 2, "width": 256, "heads": 8, "context": 256, "vocab": 400000, "tied": false},
            "data": {"train": "x"}, "device": "cpu", "precision": "bf16", "batch": {"global": 16, "micro": 8, "sequence": 128}})",
        "run.json",
        {fmt::format("limits.device={}", device), fmt::format("strategy={}", strategy), "limits.disk_path=/tmp", "limits.disk=100GB"});
  };
  constexpr std::string_view kHere =
      R"({"offload": {"optimizer": "none", "params": "none", "gradients": "none", "activations": "none"}, "recompute": "none"})";
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const auto best = [&](const config::Run& run) {
    const planner::Problem problem = train::planning_problem(run, cluster, 1);
    planner::Estimator estimator(problem);
    const planner::Found found = planner::search(estimator, train::planning_space(run, problem), {});
    EXPECT_FALSE(found.candidates.empty());
    return found.candidates.at(0);
  };
  EXPECT_EQ(best(run_of("8GB", kHere)).choice.strategy.embedding_rows, strategy::EmbeddingRows::whole);
  const config::Run small = run_of("3GB", kHere);
  const planner::Candidate rows = best(small);
  EXPECT_EQ(rows.choice.strategy.embedding_rows, strategy::EmbeddingRows::disk);
  const train::Forecast forecast = train::forecast(train::decided(small, rows.choice), cluster);
  EXPECT_TRUE(forecast.fits()) << forecast.reason;
  const auto arena = [&](plan::Tier tier) {
    return static_cast<double>(forecast.plan.classes.front().arena[static_cast<std::size_t>(tier)].count);
  };
  EXPECT_NEAR(static_cast<double>(rows.estimate.memory.device().count) / arena(plan::Tier::device), 1.0, 0.1);
  EXPECT_NEAR(static_cast<double>(rows.estimate.memory.disk.count) / arena(plan::Tier::disk), 1.0, 0.1);
  EXPECT_NEAR(rows.estimate.step_seconds / forecast.step_seconds, 1.0, 0.1);
}

// What a cluster that is too small is told.
TEST(Planning, NamesTheSmallestClusterThatHoldsTheModel) {
  config::Run run = config::parse_run(
      R"({"model": {"family": "gpt2", "layers": 48, "width": 8192, "heads": 64, "context": 2048, "vocab": 51200}, "precision": "fp16",
          "batch": {"global": 512, "sequence": 2048}, "strategy": "auto", "data": {"train": "x"}, "device": "cpu"})",
      "run.json", {});
  const cluster::Cluster cluster = cluster::preset("p3.16xlarge");
  const planner::Problem problem = train::planning_problem(run, cluster, 8);
  planner::Estimator estimator(problem);
  const planner::Found found = planner::search(estimator, train::planning_space(run, problem));
  ASSERT_TRUE(found.candidates.empty());
  const std::string text = not_legal([&] { train::refuse(run, cluster, problem, found); });
  const std::int64_t nodes = train::fewest_nodes(run, cluster, 1 << 12);
  ASSERT_GT(nodes, 1);
  EXPECT_NE(text.find(fmt::format("has {} nodes, {} devices", nodes, 8 * nodes)), std::string::npos) << text;
  // It holds there, and not on one node less.
  for (const std::int64_t count : {nodes, nodes - 1}) {
    cluster::Cluster other = cluster;
    other.nodes = count;
    const planner::Problem there = train::planning_problem(run, other, other.devices());
    planner::Estimator of_it(there);
    planner::SearchOptions options;
    options.first_that_fits = true;
    EXPECT_EQ(planner::search(of_it, train::planning_space(run, there), options).candidates.empty(), count < nodes) << count;
  }
}

TEST(Planning, TheLargestModelFitsAndTheNextDoesNot) {
  config::Run run = run_with(R"("auto")", 1);
  run.limits.device = base::Bytes{1ll << 30};
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const std::optional<model::Model> largest = train::largest_model(run, cluster, 8, {});
  ASSERT_TRUE(largest);
  EXPECT_GT(families::parameter_count(*largest), families::parameter_count(run.model));
  EXPECT_EQ(largest->width, largest->heads * largest->head_dim);
  for (const std::int64_t heads : {largest->heads, largest->heads + 8}) {
    run.model = train::scaled_model(run.model, heads);
    const planner::Problem problem = train::planning_problem(run, cluster, 8);
    planner::Estimator estimator(problem);
    EXPECT_EQ(planner::search(estimator, train::planning_space(run, problem)).candidates.empty(), heads > largest->heads) << heads;
  }
}

// Sums over micro-batches are made of what reductions left while the passes go on: gradients in shards take little longer than whole ones.
TEST(Planning, ReductionsOfEveryMicroBatchAreHiddenByThePasses) {
  const auto seconds = [](bool whole) {
    const config::Run run = config::parse_run(
        R"({"model": "llama-8b", "data": {"train": "x"}, "precision": "bf16", "device": "cpu",
            "batch": {"global": 64, "micro": 2, "sequence": 2048},
            "strategy": {"data": 16, "tensor": 2, "sequence_parallel": true, "zero": 3}})",
        "run.json", {fmt::format("strategy.keep_grads={}", whole)});
    cluster::Cluster cluster = cluster::preset("dgx-a100-80g");
    cluster.nodes = 4;
    return train::forecast(run, cluster).step_seconds;
  };
  EXPECT_LT(seconds(false) / seconds(true), 1.08);
}

// One head and one layer cannot be dealt out to 32 ranks that have 8 samples; larger models can.
TEST(Planning, TheLargestModelIsFoundWhereTheSmallestCannotBeDealtOut) {
  config::Run run = config::parse_run(kRun, "run.json", {R"(strategy="auto")", "batch.global=8"});
  cluster::Cluster cluster = cluster::preset("dgx-h100");
  cluster.nodes = 4;
  const std::optional<model::Model> largest = train::largest_model(run, cluster, 32, {});
  ASSERT_TRUE(largest);
  EXPECT_GT(families::parameter_count(*largest), families::parameter_count(run.model));
}

// Whoever never calibrated gets a page of a run that uses its disk too, and a plan with what is free there.
TEST(Planning, AGuessedMachineHasADisk) {
  io::PosixFileSystem files;
  config::Run run = run_with(R"("auto")", 1);
  run.limits.device = base::Bytes{64ll << 20};
  run.limits.disk_path = "/";
  const cluster::Cluster cluster = train::machine_at_a_guess(files, run, 1);
  EXPECT_NE(cluster.find(cluster::Reach::disk), nullptr);
  EXPECT_NEAR(static_cast<double>(cluster.host.disk.count), static_cast<double>(files.free_space("/").count), 1e9);
  EXPECT_GT(cluster.host.memory, run.limits.device) << "a limit is the run's, not the machine's";
  const planner::Problem problem = train::planning_problem(run, cluster, 1);
  EXPECT_EQ(problem.disk, cluster.host.disk);
  EXPECT_FALSE(problem.host_is_a_tier) << "on a processor the host's memory is the device's";
}

// A processor's ranks share one memory where nobody limits them; a limit is each rank's own. The same in plans, forecasts and training.
TEST(Planning, ALimitOfAProcessorIsEachRanksOwnEverywhere) {
  io::PosixFileSystem files;
  config::Run run = run_with(R"({"data": 2, "recompute": "full", "offload": {"optimizer": "host", "gradients": "none"}})", 1);
  const plan::Plan plan = train::plan_session(train::session_options(run, {}));
  const auto arena = [&](plan::Tier tier) { return plan::fullest_class(plan).arena[static_cast<std::size_t>(tier)]; };
  const base::Bytes device = arena(plan::Tier::device);
  const base::Bytes host = arena(plan::Tier::host) * 2;
  ASSERT_GT(host, device * 2) << "so that their sum would not fit the device's limit";
  cluster::Cluster cluster = train::machine_at_a_guess(files, run, 2);
  for (const bool enough : {true, false}) {
    run.limits.device = enough ? device : device - base::Bytes{1};
    run.limits.host = host;
    const train::Capacity capacity{.device = run.limits.device, .reserve = {}, .origin = "a limit", .host = run.limits.host};
    EXPECT_EQ(!train::why_too_large(plan, capacity), enough);
    const train::Forecast forecast = train::forecast(run, cluster);
    EXPECT_EQ(forecast.fits(), enough) << forecast.reason;
    EXPECT_EQ(train::planning_problem(run, cluster, 2).device, run.limits.device);
  }
  run.limits.device = device;
  run.limits.host = host - base::Bytes{1};
  EXPECT_FALSE(train::forecast(run, cluster).fits());
  // Without limits both tiers are in the machine's memory.
  run.limits = {};
  cluster.device.reserve = {};
  const base::Bytes both = device * 2 + host;
  for (const base::Bytes memory : {both, both - base::Bytes{1}}) {
    cluster.device.memory = cluster.host.memory = memory;
    EXPECT_EQ(train::forecast(run, cluster).fits(), memory == both);
    EXPECT_EQ(train::planning_problem(run, cluster, 2).together, memory);
  }
}

// The table of a tier is that of the rank with most there, whichever is fullest on its device.
TEST(Planning, ARefusalByTheHostShowsTheRankThatHasMostThere) {
  const config::Run run = run_with(R"({"pipe": 4, "schedule": "gpipe", "offload": {"optimizer": "host"}})", 1);
  const plan::Plan plan = train::plan_session(train::session_options(run, {}));
  const plan::RankClass* most = plan.classes.data();
  for (const plan::RankClass& rank_class : plan.classes) {
    if (rank_class.arena[1] > most->arena[1]) most = &rank_class;
  }
  const auto why =
      train::why_too_large(plan, {.device = base::Bytes{1ll << 40}, .reserve = {}, .origin = "a limit", .host = base::Bytes{1}});
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("\"" + most->name + "\", the fullest there"), std::string::npos) << *why;
}

TEST(Planning, PinsAreKept) {
  const config::Run run = run_with(R"({"tensor": 2, "recompute": "full"})", 2);
  const planner::Problem problem = train::planning_problem(run, cluster::preset("dgx-h100"), 8);
  planner::Estimator estimator(problem);
  const planner::Found found = planner::search(estimator, train::planning_space(run, problem));
  ASSERT_FALSE(found.candidates.empty());
  for (const planner::Candidate& candidate : found.candidates) {
    EXPECT_EQ(candidate.choice.strategy.tensor, 2);
    EXPECT_EQ(candidate.choice.micro, 2);
    EXPECT_EQ(candidate.choice.strategy.recompute, strategy::Recompute::full);
  }
  // What comes back is a run that lowering takes.
  const config::Run decided = train::decided(run, found.candidates[0].choice);
  EXPECT_FALSE(decided.strategy_auto);
  EXPECT_GT(exact_bytes(decided), 0.0);
}

// Stages that are listed as counts of blocks have whatever degrees the search gives all of them.
TEST(Planning, ListedStagesTakeTheDegreesThatAreFound) {
  const config::Run run = run_with(R"({"stages": [3, 5], "bucket": 0})", 1);
  const planner::Problem problem = train::planning_problem(run, cluster::preset("dgx-h100"), 8);
  planner::Estimator estimator(problem);
  const planner::Found found = planner::search(estimator, train::planning_space(run, problem));
  ASSERT_FALSE(found.candidates.empty()) << found.illegal;
  const config::Run decided = train::decided(run, found.candidates[0].choice);
  EXPECT_EQ(decided.strategy.pipe, 2);
  EXPECT_EQ(decided.strategy.ranks(), 8);
  EXPECT_GT(exact_bytes(decided), 0.0);
}

TEST(Planning, ContradictionsNameBothKeys) {
  const config::Run run = run_with(R"({"tensor": 4, "pipe": 4})", 2);
  const planner::Problem problem = train::planning_problem(run, cluster::preset("dgx-h100"), 8);
  const std::string text = not_legal([&] { train::planning_space(run, problem); });
  for (const char* part : {"\"tensor\": 4", "\"pipe\": 4", "16 ranks"}) EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace plimsoll::tests
