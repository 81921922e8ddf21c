// Small models trained on several thread ranks, with everything a comparison between layouts needs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "strategy/strategy.h"
#include "train/session/session.h"

namespace plimsoll::ranks {

inline constexpr std::int64_t kSequence = 12;

struct Layout {
  strategy::Strategy strategy;
  std::int64_t micro = 1;         // samples per micro-batch of a rank
  base::Bytes device_limit = {};  // of a rank's arena, where the strategy is fitted to it
  std::optional<strategy::schedules::Schedule> schedule = {};
  std::string disk_folder = {};  // of the disk tier, where the strategy has one
};

struct Task {
  model::Model model;
  model::Precision precision = model::Precision::f32;
  double clip = 1.0;
  std::int64_t amax_history = 0;  // fp8
  std::int64_t samples = 8;       // in a step, over all ranks
  std::int32_t steps = 3;
  float learning_rate = 1e-2f;
  const char* optimizer = "adamw";
  const ops::UpdateRule* rule = nullptr;  // instead of the one of that name
  model::Master master = model::Master::f32;
  model::Moments moments = model::Moments::f32;
  std::vector<std::string> freeze = {};
  const ops::FormInfo* freeze_as = nullptr;
  std::function<void(train::Session&)> begin = {};  // (optional) run on each rank before the first step
  bool gradients = false;                           // keep those of the last step
  const executor::Backend* backend = nullptr;       // where to run; null: the processor
  io::FileSystem* file_system = nullptr;            // of the disk tier; null: this machine's
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> parameters;     // whole, after the last step
  std::map<std::string, std::vector<std::byte>> gradients;  // of the last step, as rank 0 holds them
  double evaluation = 0.0;                                  // sum of losses of the step's samples afterwards
  std::vector<std::int64_t> sent;                           // bytes, by rank: what the train program sent in a step
  std::vector<std::int64_t> predicted;                      // the same from the plan
  std::int64_t arena = 0;                                   // bytes of rank 0
  std::int64_t host_arena = 0;                              // bytes of rank 0 in the host's memory
  std::int64_t disk_arena = 0;                              // bytes of rank 0 on disk
  double extra_arithmetic = 0.0;                            // share of what runs again
  std::int64_t activations = 0;                             // most bytes of them alive at once
};

// Samples are the same for every layout: they depend on their number in the step alone.
void fill(train::Session& session, std::string_view program, std::int32_t micro_batch, std::int64_t first, std::int64_t vocab,
          std::uint32_t step);
std::int64_t valid_targets(std::int64_t samples);

model::Model small_model(model::Family family);
train::SessionOptions options_for(const Task& task, const Layout& layout);
Outcome train(const Task& task, const Layout& layout);
// A session on each of the strategy's ranks, which are threads.
void for_each_rank(const train::SessionOptions& options, const std::function<void(train::Session&)>& body);

}  // namespace plimsoll::ranks
