#include "planner/residency.h"

#include <algorithm>
#include <cmath>

#include "solvers/pofo.h"

namespace plimsoll::planner {

namespace {

// The programmes grow with the cube of the stages: of long chains, neighbouring layers are taken together.
constexpr std::int64_t kMostGroups = 32;
constexpr std::int32_t kSlots = 300;

// `count` equal layers, or one of the ends.
solvers::ChainStage stage_of(const BlockPrice& block, bool is_layer, std::int64_t count, bool counts_gradients) {
  const auto times = static_cast<double>(count);
  const double backward = block.backward_input + block.backward_weight;
  const std::int64_t beside = std::max<std::int64_t>(0, block.temporary_backward - block.output);
  solvers::ChainStage stage{.output = block.output,
                            .gradient = block.output,
                            .weight_gradients = counts_gradients ? count * block.gradients : 0,
                            .forward = times * block.forward,
                            .forward_again = (times - 1.0) * block.forward + (is_layer ? block.full.again : block.forward),
                            .temporary = block.temporary_forward,
                            .forms = {{.saved = count * block.everything.bytes, .backward = times * backward, .temporary = beside}}};
  const auto add_form = [&](const Keeping& keeping) {
    stage.forms.push_back({.saved = count * keeping.bytes,
                           .backward = times * (backward + keeping.again),
                           .temporary = beside + block.everything.bytes - keeping.bytes});
  };
  if (is_layer && block.selective.bytes < block.everything.bytes) add_form(block.selective);
  if (count > 1 && block.full.bytes < block.everything.bytes) add_form(block.full);
  return stage;
}

solvers::Chain chain_of(const Prices& prices, std::int64_t layers, bool counts_gradients) {
  solvers::Chain chain{.input = prices.inputs, .stages = {stage_of(prices.embedding, false, 1, counts_gradients)}};
  const std::int64_t groups = std::min(layers, kMostGroups);
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t count = layers * (group + 1) / groups - layers * group / groups;
    chain.stages.push_back(stage_of(prices.layer, true, count, counts_gradients));
  }
  chain.stages.push_back(stage_of(prices.head, false, 1, counts_gradients));
  return chain;
}

}  // namespace

Residency::Residency(const Prices& prices, std::int64_t layers, bool counts_gradients)
    : chain_(chain_of(prices, layers, counts_gradients)) {
  const solvers::ChainCost kept = solvers::replay(chain_, solvers::keep_all(chain_));
  kept_seconds_ = kept.time;
  kept_bytes_ = kept.peak;
  options_.slots = kSlots;
}

const solvers::RotorTable& Residency::table() const {
  if (table_ == nullptr) table_ = std::make_unique<solvers::RotorTable>(chain_, kept_bytes_, options_);
  return *table_;
}

std::optional<Residency::Way> Residency::within(std::int64_t bytes, double link) const {
  if (bytes >= kept_bytes_) return Way{.again = 0.0, .bytes = kept_bytes_, .away = 0};
  if (bytes <= chain_.input) return std::nullopt;
  if (link > 0.0) {
    const solvers::JointProgramme joint(chain_, bytes, {.out = link, .in = link}, options_);
    const std::optional<solvers::JointOrder> order = joint.fastest();
    if (!order) return std::nullopt;
    return Way{.again = std::max(0.0, order->time - kept_seconds_), .bytes = bytes, .away = order->moved};
  }
  const double seconds = table().time(0, chain_.stages.size() - 1, bytes - chain_.input);
  if (!std::isfinite(seconds)) return std::nullopt;
  return Way{.again = std::max(0.0, seconds - kept_seconds_), .bytes = bytes, .away = 0};
}

std::int64_t Residency::least() const {
  std::int64_t little = 0;
  std::int64_t enough = kept_bytes_;
  const std::int64_t part = std::max<std::int64_t>(1, kept_bytes_ / options_.slots);
  while (enough - little > part) {
    const std::int64_t middle = little + (enough - little) / 2;
    (within(middle, 0.0) ? enough : little) = middle;
  }
  return enough;
}

}  // namespace plimsoll::planner
