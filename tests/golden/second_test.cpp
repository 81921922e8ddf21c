// Differentiation twice, run by the engine: the Hessian's product with a direction for whole models, against PyTorch's double backward
// (second.safetensors; README.md) and against differences of the gradients that the same program makes.
//
// It is also how a graph of one's own is run: built, differentiated, lowered, and its program executed, without a session.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "config/config.h"
#include "executor/cpu/cpu_backend.h"
#include "formats/hf_directory.h"
#include "formats/hf_gather.h"
#include "formats/safetensors.h"
#include "golden/test_device.h"
#include "graph/passes/differentiate.h"
#include "graph/passes/passes.h"
#include "io/posix_file_system.h"
#include "lowering/lower.h"
#include "ops/step_scalars.h"
#include "plan/verify.h"
#include "train/session/buffers.h"
#include "train/session/initialise.h"
#include "train/session/session.h"
#include "train/setup/setup.h"

namespace plimsoll {
namespace {

constexpr std::string_view kProgram = "second";
constexpr std::uint64_t kDirectionSeed = 7;  // of second.py
constexpr double kTolerance = 1e-5;          // as of gradients: of the tensor's largest, or 1e-3 of the model's
constexpr float kStep = 1e-2f;               // of differences, in f32
constexpr double kDifferenceTolerance = 2e-3;

graph::ValueId add_direction(graph::Graph& graph, const graph::Parameter& parameter) {
  const graph::Value weight = graph.values[parameter.weight];
  return graph.add_value(
      {.name = "direction." + parameter.name, .type = weight.type, .role = graph::Role::constant, .block = weight.block});
}

// Results: "gradient.NAME" and "product.NAME" of every parameter. Inputs: those of the model, and "direction.NAME".
graph::Graph second_graph(const train::SessionOptions& options) {
  graph::Builder build({.micro_batch = options.training.micro_batch, .segmented = options.training.segmented});
  options.forward(build);
  graph::Graph graph = std::move(build).finish();
  graph::fuse_linear_activation(graph);
  graph::fuse_residual_norm(graph);
  std::vector<graph::ValueId> weights;
  for (const graph::Parameter& parameter : graph.parameters) weights.push_back(parameter.weight);

  const graph::Objective loss{graph.results[0]};
  const std::vector<graph::ValueId> gradients = differentiate(graph, {&loss, 1}, weights);
  std::vector<graph::Objective> along;
  for (std::size_t index = 0; index < gradients.size(); ++index)
    along.push_back({gradients[index], add_direction(graph, graph.parameters[index])});
  const std::vector<graph::ValueId> products = differentiate(graph, along, weights);

  graph.results.clear();
  for (std::size_t index = 0; index < weights.size(); ++index) {
    graph.values[gradients[index]].name = "gradient." + graph.parameters[index].name;
    graph.values[products[index]].name = "product." + graph.parameters[index].name;
    graph.results.insert(graph.results.end(), {gradients[index], products[index]});
  }
  graph::remove_unused(graph);
  graph::verify(graph, "differentiating twice");
  return graph;
}

float largest(std::span<const float> values) {
  float found = 0.0f;
  for (float value : values) found = std::max(found, std::abs(value));
  return found;
}

class Second : public testing::TestWithParam<const char*> {
 protected:
  Second()
      : folder_(std::string(PLIMSOLL_SOURCE_DIR "/tests/golden/data/") + GetParam()),
        run_(config::load_run(folder_ + "/run.json", on_test_device())),
        weights_(formats::HfDirectory::open(files_, folder_, folder_ + "/weights.safetensors")),
        batch_(formats::Safetensors::open(files_, folder_ + "/batch.safetensors")),
        second_(formats::Safetensors::open(files_, folder_ + "/second.safetensors")) {
    run_.batch.micro = run_.batch.global;
    train::SessionOptions options = train::session_options(run_, {});
    options.training.segmented = batch_.find("segment_ids") != nullptr || batch_.find("attention_mask") != nullptr;
    graph_ = second_graph(options);
    plan_ = lowering::lower({.model = GetParam(),
                             .programs = {{std::string(kProgram), graph_, 1}},
                             .strategy = {},
                             .choose = [](const ops::KernelQuery& query) { return executor::cpu_backend().choose(query); },
                             .threads = 2});
    executor_ = executor::cpu_backend().make_executor(plan_, {.file_system = &files_});
    train::initialise(graph_, *executor_, {.seed = 1, .parameters = false});
    buffers_.emplace(*executor_);
  }

  std::span<float> view(const std::string& name) { return buffers_->view<float>(name); }
  std::vector<float> result(const std::string& name) {
    const std::span<float> found = view(train::program_buffer(kProgram, name, 0));
    return {found.begin(), found.end()};
  }

  // Rows of the stored tensors that make up one of ours.
  std::vector<float> gathered(const formats::HfTensor& tensor, std::size_t elements, const auto& part_of) {
    std::vector<float> whole(elements, 0.0f);
    const std::int64_t row_elements = static_cast<std::int64_t>(elements) / tensor.shape.front();
    for (const formats::HfPart& part : tensor.parts) formats::gather_part(part, part_of(part.name), {0, row_elements}, whole);
    return whole;
  }

  std::vector<float> direction_of(const formats::HfTensor& tensor, std::size_t elements) {
    std::vector<std::vector<float>> drawn;
    return gathered(tensor, elements, [&](const std::string& name) {
      formats::TensorView stored = second_.at("product." + name);
      std::vector<float>& values = drawn.emplace_back(formats::to_f32(stored).size());
      const base::RandomKey key = base::random_key(kDirectionSeed, base::hash_name("direction." + name));
      for (std::size_t e = 0; e < values.size(); ++e) {
        const base::RandomBlock words = base::philox({static_cast<std::uint32_t>(e / 4), 0, 0, 0}, key);
        const std::size_t pair = e % 4 / 2 * 2;
        values[e] = base::normal_from_bits(words[pair], words[pair + 1])[e % 2];
      }
      stored.data = std::as_bytes(std::span(values));
      stored.file = nullptr;
      return stored;
    });
  }

  void fill(std::string_view value, std::string_view stored) {
    const std::string name = train::program_buffer(kProgram, value, 0);
    if (batch_.find(stored) == nullptr || !buffers_->has(name)) return;
    const std::span<std::int32_t> input = buffers_->view<std::int32_t>(name);
    const std::vector<std::int32_t> all = formats::to_i32(batch_.at(stored));
    std::copy_n(all.begin(), input.size(), input.begin());
    // Padding is what our segments call -1.
    if (stored == "attention_mask") std::transform(input.begin(), input.end(), input.begin(), [](std::int32_t mask) { return mask - 1; });
  }

  // With the weights moved along the directions.
  void run(float moved) {
    for (const formats::HfTensor& tensor : weights_.tensors()) {
      const std::span<float> weight = view(tensor.name);
      weights_.load(tensor.name, 0, weight);
      const std::vector<float> direction = direction_of(tensor, weight.size());
      std::copy(direction.begin(), direction.end(), view("direction." + tensor.name).begin());
      for (std::size_t e = 0; e < weight.size(); ++e) weight[e] += moved * direction[e];
    }
    fill("tokens", "input_ids");
    fill("targets", "labels");
    fill("positions", "position_ids");
    fill("segments", "segment_ids");
    fill("segments", "attention_mask");
    fill("token_types", "token_type_ids");
    const std::span<std::int32_t> targets = buffers_->view<std::int32_t>(train::program_buffer(kProgram, "targets", 0));
    const auto valid = std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
    auto& scalars = *reinterpret_cast<ops::StepScalars*>(buffers_->bytes("scalars"));
    scalars.inverse_tokens = 1.0f / static_cast<float>(valid);
    executor_->run(kProgram);
  }

  io::PosixFileSystem files_;
  std::string folder_;
  config::Run run_;
  formats::HfDirectory weights_;
  formats::Safetensors batch_;
  formats::Safetensors second_;
  graph::Graph graph_;
  plan::Plan plan_;
  std::unique_ptr<executor::Executor> executor_;
  std::optional<train::Buffers> buffers_;
};

TEST_P(Second, HessianProductsArePyTorchs) {
  EXPECT_TRUE(plan::problems(plan_).empty());
  run(0.0f);
  float model_largest = 0.0f;
  for (const formats::TensorView& stored : second_.tensors()) model_largest = std::max(model_largest, largest(formats::to_f32(stored)));
  for (const formats::HfTensor& tensor : weights_.tensors()) {
    const std::vector<float> found = result("product." + tensor.name);
    const std::vector<float> expected =
        gathered(tensor, found.size(), [&](const std::string& name) { return second_.at("product." + name); });
    double difference = 0.0;
    for (std::size_t e = 0; e < found.size(); ++e) difference = std::max<double>(difference, std::abs(found[e] - expected[e]));
    EXPECT_LE(difference, kTolerance * std::max(largest(expected), 1e-3f * model_largest)) << tensor.name;
  }
}

// A direction of length 1 would be a small step in each weight; these are as long as there are weights, so the step is small.
TEST_P(Second, TheyAreDifferencesOfGradients) {
  const float step = kStep / std::sqrt(static_cast<float>(weights_.tensors().size()) * 1000.0f);
  const auto gradients_at = [&](float moved) {
    run(moved);
    std::vector<std::vector<float>> found;
    for (const formats::HfTensor& tensor : weights_.tensors()) found.push_back(result("gradient." + tensor.name));
    return found;
  };
  const std::vector<std::vector<float>> ahead = gradients_at(step);
  const std::vector<std::vector<float>> behind = gradients_at(-step);
  run(0.0f);
  double error = 0.0;
  double size = 0.0;
  for (std::size_t index = 0; index < ahead.size(); ++index) {
    const std::vector<float> product = result("product." + weights_.tensors()[index].name);
    for (std::size_t e = 0; e < product.size(); ++e) {
      const double slope = static_cast<double>(ahead[index][e] - behind[index][e]) / (2.0 * static_cast<double>(step));
      error += std::pow(slope - static_cast<double>(product[e]), 2);
      size += std::pow(static_cast<double>(product[e]), 2);
    }
  }
  EXPECT_LE(std::sqrt(error), kDifferenceTolerance * std::sqrt(size));
}

INSTANTIATE_TEST_SUITE_P(Cases, Second, testing::Values("gpt2-tiny", "gpt2-packed", "llama-tied-llama3rope", "qwen3-tiny", "bert-tiny"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plimsoll
