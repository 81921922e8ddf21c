// Models in turn on one GPU: each computes what it computes alone, to the bit, issued, captured and replayed, with what the larger needs
// while it runs and what both keep.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "executor/cuda/load/cuda_backend.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

constexpr std::uint32_t kSteps = 5;

struct Model {
  Task task;
  Layout layout;
  std::vector<double> alone{};
  std::vector<double> in_turn{};
};

double step(train::Session& session, const Model& model, std::uint32_t number) {
  for (std::int64_t sample = 0; sample < model.task.samples; sample += model.layout.micro)
    fill(session, "train", static_cast<std::int32_t>(sample / model.layout.micro), sample, model.task.model.vocab, number);
  return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(model.task.samples)}).loss;
}

TEST(SharedGpu, ModelsInTurnAreModelsAlone) {
  const executor::Backend& gpu = executor::cuda_backend();
  Layout on_host{.strategy = {}, .micro = 2};  // with streams of the host's, and pinned memory
  on_host.strategy.offload.optimizer = {.host = 1.0};
  on_host.strategy.offload.activations = {.host = 1.0};
  std::vector<Model> models;
  for (const auto& [family, layout] : {std::pair{families::gpt2(), Layout{.strategy = {}, .micro = 1}}, {families::llama(), on_host}})
    models.push_back({{.model = small_model(family), .samples = 4, .backend = &gpu}, layout});
  models[1].task.model.layers = 3;
  std::vector<plan::Plan> plans;
  for (Model& model : models) {
    train::Session session(options_for(model.task, model.layout));
    for (std::uint32_t number = 1; number <= kSteps; ++number) model.alone.push_back(step(session, model, number));
    plans.push_back(session.plan());
  }
  const std::vector<const plan::Plan*> both{&plans[0], &plans[1]};
  const std::unique_ptr<executor::SharedDevice> device = gpu.share(both, 0);
  for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host}) {
    std::int64_t most = 0;
    for (const plan::Plan& plan : plans)
      most = std::max(most, (plan.classes[0].arena[static_cast<std::size_t>(tier)] - plan::kept_bytes(plan.classes[0], tier)).count);
    EXPECT_EQ(std::ssize(device->passing(tier)), most);
  }
  std::vector<std::unique_ptr<train::Session>> sessions;
  for (const Model& model : models) {
    train::SessionOptions options = options_for(model.task, model.layout);
    options.shared = device.get();
    sessions.push_back(std::make_unique<train::Session>(options));
  }
  for (std::uint32_t number = 1; number <= kSteps; ++number) {
    for (std::size_t index = 0; index < models.size(); ++index)
      models[index].in_turn.push_back(step(*sessions[index], models[index], number));
  }
  for (const Model& model : models) EXPECT_EQ(model.in_turn, model.alone);
}

}  // namespace
}  // namespace plimsoll::ranks
