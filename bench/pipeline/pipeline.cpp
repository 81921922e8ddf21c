// Pipelines on thread ranks beside what their schedules promise:
//   bench_pipeline                    # bubbles of each schedule on two ranks, memory on four, planning of a large one
//   bench_pipeline --only bubble --steps 5
// The bubble is the share of the ranks' time in which none of their calls runs, from the first forward to the last backward; it
// stands beside the schedule's own, simulated with the times that its pieces took.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "collectives/local/threads.h"
#include "families/families.h"
#include "plan/waterline.h"
#include "strategy/schedules/simulate.h"
#include "strategy/schedules/table.h"
#include "train/session/session.h"

namespace {

using namespace plimsoll;
namespace schedules = strategy::schedules;

struct Work {
  std::string schedule;
  std::int64_t pipe = 2;
  std::int64_t chunks = 1;
  std::int32_t micro_batches = 8;
};

// Stages of equal cost: many alike layers, and hardly any vocabulary.
model::Model even_model(std::int64_t layers, std::int64_t width) {
  model::Model model = families::defaults(families::gpt2());
  model.layers = layers;
  model.width = width;
  model.heads = model.kv_heads = width / 64;
  model.head_dim = 64;
  model.ffn = 4 * width;
  model.context = 128;
  model.vocab = 64;
  return model;
}

train::SessionOptions options_of(const Work& work, const model::Model& model, std::int64_t sequence) {
  train::SessionOptions options{.forward = train::forward_of(model), .name = "even", .training = {}};
  options.training.micro_batch = {1, sequence};
  options.training.accumulates = work.micro_batches > 1;
  options.micro_batches = work.micro_batches;
  options.strategy.pipe = work.pipe;
  options.strategy.chunks = work.chunks;
  options.strategy.schedule = work.schedule;
  options.threads = 1;
  return options;
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// What one rank did in the forward and backward passes of a step, on a clock that all ranks share.
struct Passes {
  double begin = 0.0;
  double end = 0.0;
  double busy = 0.0;
  double kernels = 0.0;
  std::map<std::string, std::pair<double, int>> phases{};  // seconds and runs, by phase
};

Passes passes_of(const executor::Timeline& timeline, double start) {
  Passes passes{.begin = 1e30};
  for (const executor::TimelineEvent& event : timeline.events) {
    if (event.stream != 0) continue;
    const std::size_t dot = event.name.rfind('.');
    const std::string phase = dot == std::string::npos ? "" : event.name.substr(dot + 1);
    if (event.kernel.empty() && (phase == "forward" || phase == "backward" || phase == "backward-weight")) {
      passes.begin = std::min(passes.begin, start + event.begin);
      passes.end = std::max(passes.end, start + event.end);
      passes.busy += event.end - event.begin;
      auto& [seconds, runs] = passes.phases[phase];
      seconds += event.end - event.begin;
      ++runs;
    }
  }
  // Kernels of those calls: what lies in their time.
  for (const executor::TimelineEvent& event : timeline.events) {
    if (event.stream == 0 && !event.kernel.empty() && start + event.end <= passes.end) passes.kernels += event.end - event.begin;
  }
  return passes;
}

struct Measured {
  double bubble = 0.0;
  double expected = 0.0;
  double outside = 0.0;  // share of calls' time that is not in a kernel
  double seconds = 0.0;
};

// The best of several steps: a busy machine only adds.
Measured measure(const Work& work, const model::Model& model, std::int64_t sequence, int steps) {
  std::mutex mutex;
  std::vector<std::vector<Passes>> by_step(static_cast<std::size_t>(steps));
  std::barrier<> together(work.pipe);
  collectives::local::run_threads(static_cast<int>(work.pipe), [&](collectives::Transport& transport) {
    train::SessionOptions own = options_of(work, model, sequence);
    own.transport = &transport;
    train::Session session(own);
    for (int step = -1; step < steps; ++step) {
      for (std::int32_t micro_batch = 0; micro_batch < work.micro_batches; ++micro_batch) {
        for (const char* name : {"tokens", "targets", "positions", "samples"}) {
          const auto input = session.input("train", name, micro_batch);
          for (std::size_t index = 0; index < input.size(); ++index)
            input[index] = static_cast<std::int32_t>((index * 7 + static_cast<std::size_t>(micro_batch)) % 61);
        }
      }
      executor::Timeline timeline;
      together.arrive_and_wait();
      const double start = seconds_now();
      session.step({.learning_rate = 1e-4f,
                    .step = static_cast<std::uint32_t>(step + 2),
                    .valid_targets = sequence * static_cast<std::int64_t>(work.micro_batches)},
                   &timeline);
      const std::lock_guard lock(mutex);
      if (step >= 0) by_step[static_cast<std::size_t>(step)].push_back(passes_of(timeline, start));
    }
  });
  Measured best{.seconds = 1e30};
  for (const std::vector<Passes>& ranks : by_step) {
    double begin = 1e30, end = 0.0, busy = 0.0, kernels = 0.0;
    std::map<std::string, double> phases;
    for (const Passes& rank : ranks) {
      begin = std::min(begin, rank.begin);
      end = std::max(end, rank.end);
      busy += rank.busy;
      kernels += rank.kernels;
      for (const auto& [phase, time] : rank.phases) phases[phase] += time.first;
    }
    if (end - begin >= best.seconds) continue;
    const double pieces = static_cast<double>(work.pipe * work.chunks * work.micro_batches);
    schedules::Costs costs;
    costs.stages = {{.forward = phases["forward"] / pieces,
                     .backward_input = phases["backward"] / pieces,
                     .backward_weight = phases["backward-weight"] / pieces,
                     .recompute = 0.0}};
    const schedules::Schedule schedule =
        schedules::build(work.schedule, {.ranks = work.pipe, .micro_batches = work.micro_batches, .chunks = work.chunks});
    const schedules::Timeline ideal = schedules::simulate(schedule, costs);
    double ideal_busy = 0.0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(work.pipe); ++rank) ideal_busy += ideal.busy(rank);
    best = {.bubble = 1.0 - busy / (static_cast<double>(work.pipe) * (end - begin)),
            .expected = 1.0 - ideal_busy / (static_cast<double>(work.pipe) * ideal.makespan),
            .outside = 1.0 - kernels / busy,
            .seconds = end - begin};
  }
  return best;
}

void bubbles(int steps) {
  const model::Model model = even_model(8, 512);
  fmt::print("| schedule | ranks | micro-batches | bubble | of the schedule | points apart | of the calls outside kernels |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Work& work : {Work{"naive", 2, 1, 4}, Work{"gpipe", 2, 1, 4}, Work{"gpipe", 2, 1, 8}, Work{"1f1b", 2, 1, 4},
                           Work{"1f1b", 2, 1, 8}, Work{"interleaved", 2, 2, 4}, Work{"interleaved", 2, 4, 8}, Work{"varuna", 2, 1, 8},
                           Work{"zb-h1", 2, 1, 8}, Work{"zb-h2", 2, 1, 8}}) {
    const Measured found = measure(work, model, 128, steps);
    fmt::print("| {}{} | {} | {} | {:.1f}% | {:.1f}% | {:+.1f} | {:.2f}% |\n", work.schedule,
               work.chunks > 1 ? fmt::format(", {} chunks", work.chunks) : "", work.pipe, work.micro_batches, 100 * found.bubble,
               100 * found.expected, 100 * (found.bubble - found.expected), 100 * found.outside);
  }
}

void overhead(int steps) {
  const Measured found = measure({"1f1b", 2, 1, 8}, *families::preset("gpt2"), 256, steps);
  fmt::print(
      "\nGPT-2 124M, 1f1b, 2 ranks, 8 micro-batches of 256 tokens: {:.2f}% of the calls' time is outside kernels (wanted: under 2%)\n",
      100 * found.outside);
}

// Activations of the fullest rank: a micro-batch's in each that is in flight.
void memory() {
  const model::Model model = even_model(8, 256);
  const auto fullest = [&](const std::string& schedule) {
    const plan::Plan plan = train::plan_session(options_of({schedule, 4, 1, 16}, model, 128));
    const plan::RankClass& rank_class = plan.classes.front();
    const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
    std::int64_t activations = 0;
    for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call)) {
      if (kind == plan::BufferKind::activation) activations = bytes.count;
    }
    return std::pair(activations, rank_class.arena[0].count);
  };
  const auto [held, arena] = fullest("1f1b");
  const auto [all_held, all_arena] = fullest("gpipe");
  fmt::print(
      "\nFirst of 4 ranks, 16 micro-batches: activations {:.1f} MiB under 1f1b (4 in flight), {:.1f} MiB under gpipe (16): {:.2f}x, in "
      "closed form 4x; arenas {} and {} B\n",
      static_cast<double>(held) / 1048576.0, static_cast<double>(all_held) / 1048576.0,
      static_cast<double>(all_held) / static_cast<double>(held), arena, all_arena);
}

void planning() {
  const double start = seconds_now();
  const plan::Plan plan = train::plan_session(options_of({"interleaved", 64, 4, 512}, even_model(256, 128), 32));
  std::size_t calls = 0;
  for (const plan::RankClass& rank_class : plan.classes) {
    for (const plan::Stream& stream : rank_class.programs.front().streams) calls += stream.calls.size();
  }
  fmt::print("\nPlanning p = 64, m = 512, v = 4, 256 layers: {:.1f} s for {} classes, {} procedures, {} calls (wanted: under 2 s)\n",
             seconds_now() - start, plan.classes.size(), plan.procedures.size(), calls);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Pipelines beside what their schedules promise");
  std::string only;
  int steps = 7;
  app.add_option("--only", only, "bubble, overhead, memory or planning")
      ->check(CLI::IsMember({"bubble", "overhead", "memory", "planning"}));
  app.add_option("--steps", steps, "timed steps; the fastest counts")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };
  if (wanted("bubble")) bubbles(steps);
  if (wanted("overhead")) overhead(std::min(steps, 3));
  if (wanted("memory")) memory();
  if (wanted("planning")) planning();
  return 0;
}
