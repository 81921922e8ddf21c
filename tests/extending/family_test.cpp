// A family that src does not know, read from a run file, planned and trained on rows of numbers, and held to PyTorch's losses
// (tools/golden/perceptron.py). Its blocks are unequal, and one of them reads what a block far before it made.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "collectives/local/threads.h"
#include "config/config.h"
#include "extending/perceptron.h"
#include "families/families.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/clock.h"
#include "train/trainer.h"

namespace plimsoll::extending {
namespace {

class Silent final : public observe::Observer {
 public:
  void on(const observe::Event&) override {}
};

const std::filesystem::path kData = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests" / "extending" / "data";

base::Json golden() {
  io::PosixFileSystem files;
  return base::parse_json(io::read_text(files, kData / "perceptron.json"), "perceptron.json");
}

config::Run run_of(const std::string& task, const std::vector<std::string>& overrides) {
  const base::Json expected = golden();
  base::Json model = base::Json::object({{"family", "perceptron"}, {"task", task}, {"widths", expected.at("widths")}});
  model.set("features", expected.at("features"));
  model.set("outputs", task == "classify" ? 3 : 2);
  const std::string data = (kData / (task + ".csv")).string();
  const base::Json file =
      base::Json::object({{"model", model},
                          {"data", base::Json::object({{"train", data}, {"valid", data}, {"shuffle", false}})},
                          {"batch", base::Json::object({{"global", expected.at("rows")}, {"micro", 4}})},
                          {"optimizer", base::Json::object({{"type", "sgd"}, {"lr", expected.at("rate")}, {"clip", 0}})},
                          {"steps", expected.at(task).size()},
                          {"threads", 1},
                          {"device", "cpu"}});
  return config::parse_run(base::write_json(file), "perceptron.json", overrides, {}, {perceptron()});
}

// As tools/golden/perceptron.py draws them: in the order of the parameters' numbers there, which is that of the graph.
void fill_weights(train::Session& session) {
  for (std::size_t number = 0; const graph::Parameter& parameter : session.graph().parameters) {
    const auto shift = static_cast<double>(number++);
    if (!session.buffers().has(parameter.name)) continue;  // another stage's
    const ops::ElementRange held = session.buffers().held(parameter.name);
    std::vector<float> values;
    for (std::int64_t index = held.begin; index < held.end; ++index)
      values.push_back(static_cast<float>(0.4 * std::sin(0.7 * static_cast<double>(index) + shift)));
    session.buffers().put(parameter.name, 0, values);
  }
}

std::vector<double> losses_of(const config::Run& run) {
  std::vector<double> losses;
  const auto train = [&](collectives::Transport* transport) {
    io::PosixFileSystem files;
    Silent observer;
    const observe::SystemClock clock;
    const std::atomic<bool> stop{false};
    train::Trainer trainer(run, {.file_system = files, .observer = observer, .clock = clock, .stop_wanted = stop, .transport = transport});
    fill_weights(trainer.session());
    for (std::int64_t step = 0; step < run.steps; ++step) {
      for (const observe::StepDone& done : trainer.round()) {
        if (transport == nullptr || transport->rank() == 0) losses.push_back(done.loss);
      }
    }
  };
  if (run.strategy.ranks() == 1) {
    train(nullptr);
  } else {
    collectives::local::run_threads(static_cast<int>(run.strategy.ranks()), [&](collectives::Transport& transport) { train(&transport); });
  }
  return losses;
}

class Tasks : public testing::TestWithParam<const char*> {};

TEST_P(Tasks, OneRankTrainsAsPyTorchDoes) {
  const std::vector<double> losses = losses_of(run_of(GetParam(), {}));
  const base::Json all = golden();
  const base::Json::Array& expected = all.at(GetParam()).as_array();
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) EXPECT_NEAR(losses[step], expected[step].as_double(), 2e-6) << step;
  EXPECT_LT(losses.back(), losses.front());
}

TEST_P(Tasks, APipelineOfTwoDoesTheSame) {
  const std::vector<double> alone = losses_of(run_of(GetParam(), {}));
  for (const char* partition : {"equal", "cost"})
    EXPECT_EQ(losses_of(run_of(GetParam(), {"strategy.pipe=2", std::string("strategy.stages=") + partition})), alone) << partition;
  EXPECT_EQ(losses_of(run_of(GetParam(), {"strategy.pipe=2", "strategy.stages=[3, 1]"})), alone);
  EXPECT_EQ(losses_of(run_of(GetParam(), {"strategy.pipe=4"})), alone);  // what the first stage made goes past two
}

TEST_P(Tasks, DataRanksAndZeroDoTheSame) {
  const std::vector<double> alone = losses_of(run_of(GetParam(), {}));
  for (const char* zero : {"strategy.zero=0", "strategy.zero=1", "strategy.zero=3"}) {
    const std::vector<double> shared = losses_of(run_of(GetParam(), {"strategy.data=2", zero}));
    ASSERT_EQ(shared.size(), alone.size());
    for (std::size_t step = 0; step < alone.size(); ++step) EXPECT_NEAR(shared[step], alone[step], 1e-6) << zero << " step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Objectives, Tasks, testing::Values("regress", "classify"),
                         [](const auto& each) { return std::string(each.param); });

std::string refusal_of(const std::vector<std::string>& overrides) {
  try {
    losses_of(run_of("regress", overrides));
  } catch (const base::Error& error) {
    return error.what();
  }
  return "(none)";
}

TEST(Perceptron, IsRefusedWithTheReason) {
  const auto refused = [](const std::string& setting, std::string_view part) {
    const std::string why = refusal_of({setting});
    EXPECT_NE(why.find(part), std::string::npos) << why;
  };
  refused("model.widths=[]", "\"widths\" is empty");
  refused("model.widths=[0]", "expected an array of integers");
  refused("model.heads=3", "a model of the perceptron family has no such part");
  refused("strategy.pipe=8", "use at most 4 stages");
  refused("model.outputs=4", "but the model reads");
}

TEST(Perceptron, TellsItsSettings) {
  const config::Run run = run_of("classify", {});
  EXPECT_EQ(families::parameter_count(run.model), 4 * 6 + 6 + 6 * 9 + 9 + 9 * 5 + 5 + 5 * 6 + 6 + 6 * 3 + 3);
  EXPECT_NE(config::explain(run).find("model.task"), std::string::npos);
  const std::string again = base::write_json(config::to_json(run));
  EXPECT_EQ(config::parse_run(again, "again.json", {}, {}, {perceptron()}), run);
}

}  // namespace
}  // namespace plimsoll::extending
