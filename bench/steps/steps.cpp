// Whole training steps of a preset model on random tokens, the planning of them, or where their time goes:
//   bench_steps --model gpt2 --samples 4 --sequence 256 --precision f32 --threads 2
//   bench_steps --plan --steps 20      # times plan_session instead of steps
//   bench_steps --profile              # one step by kernel, as a table
// bench/gpt2.py runs it side by side with bench/peers/torch_train.py; a step does the same work there.
#include <atomic>
#include <map>
#include <thread>

#include "base/random.h"
#include "collectives/local/threads.h"
#include "config/run.h"
#include "lowering/fit.h"
#include "model/model.h"
#include "serve.h"
#include "train/session.h"
#include "train/setup.h"

namespace {

using namespace plimsoll;

struct Options {
  bench::ServeOptions serve;
  std::string model = "gpt2";
  std::int64_t samples = 4;
  std::int64_t sequence = 256;
  double dropout = 0.0;
  double clip = 0.0;
  model::Precision precision = model::Precision::f32;
  std::int64_t fp8_history = 0;
  bool host_optimizer = false;
  std::int64_t data = 1;    // data ranks, as threads; `samples` are those of all of them
  std::int64_t tensor = 1;  // tensor ranks
  std::int64_t zero = 0;
  strategy::Recompute recompute = strategy::Recompute::none;
  std::int64_t recompute_every = 1;
  double recompute_memory = 0.0;
  config::Device device = config::Device::cpu;
  bool any_order = false;
  bool plan = false;
  bool profile = false;
};

void add_options(CLI::App& app, Options& options) {
  bench::add_options(app, options.serve);
  std::map<std::string, model::Precision> precisions;
  for (const auto precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16, model::Precision::fp8}) {
    precisions.emplace(config::name_of(precision), precision);
  }
  app.add_option("--model", options.model, "a preset")->check(CLI::IsMember(model::preset_names()))->capture_default_str();
  app.add_option("--samples", options.samples)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sequence", options.sequence)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dropout", options.dropout, "everywhere the family has it")->check(CLI::Range(0.0, 0.99))->capture_default_str();
  app.add_option("--clip", options.clip, "global gradient norm; 0 = off")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--precision", options.precision, "f32, bf16, fp16 or fp8")->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--fp8-history", options.fp8_history, "fp8: delayed scaling by so many steps; 0: current scaling");
  app.add_flag("--host-optimizer", options.host_optimizer, "optimizer state in the host's memory");
  app.add_option("--data", options.data, "data ranks, as threads, each with --threads; --samples are those of all")
      ->check(CLI::PositiveNumber);
  app.add_option("--tensor", options.tensor, "tensor ranks")->check(CLI::PositiveNumber);
  app.add_option("--zero", options.zero, "ZeRO stage")->check(CLI::Range(0, 3));
  std::map<std::string, strategy::Recompute> recomputes{{"none", strategy::Recompute::none},
                                                        {"full", strategy::Recompute::full},
                                                        {"selective", strategy::Recompute::selective},
                                                        {"optimal", strategy::Recompute::optimal}};
  app.add_option("--recompute", options.recompute, "none, full, selective or optimal")->transform(CLI::CheckedTransformer(recomputes));
  app.add_option("--recompute-every", options.recompute_every, "full: blocks to an input that is kept")->check(CLI::PositiveNumber);
  app.add_option("--recompute-memory", options.recompute_memory, "optimal: share of the activation memory")->check(CLI::Range(0.0, 1.0));
  std::map<std::string, config::Device> devices;
  for (const auto device : {config::Device::cpu, config::Device::cuda}) devices.emplace(config::name_of(device), device);
  app.add_option("--device", options.device, "cpu or cuda")->transform(CLI::CheckedTransformer(devices));
  app.add_flag("--any-order", options.any_order, "not deterministic: kernels may add in any order");
  auto* plan = app.add_flag("--plan", options.plan, "time planning instead of steps");
  app.add_flag("--profile", options.profile, "print one step's time by kernel")->excludes(plan);
}

model::Model model_of(const Options& options) {
  model::Model model = *model::preset(options.model);
  model.dropout = model.attention_dropout = model.embedding_dropout = options.dropout;
  return model;
}

// What of a run file matters outside the session's own options.
config::Run run_of(const Options& options) {
  config::Run run;
  run.device = options.device;
  return run;
}

train::SessionOptions session_options(const Options& options) {
  model::Training training;
  training.precision = options.precision;
  training.micro_batch = {options.samples / options.data, options.sequence};
  training.optimizer.clip = options.clip;
  training.amax_history = options.fp8_history;
  strategy::Strategy strategy;
  strategy.data = options.data;
  strategy.tensor = options.tensor;
  strategy.zero = options.zero;
  strategy.recompute = options.recompute;
  strategy.recompute_every = options.recompute_every;
  strategy.recompute_memory = options.recompute_memory;
  if (options.host_optimizer) strategy.offload.optimizer.host = 1.0;
  return {.forward = train::forward_of(model_of(options)),
          .name = options.model,
          .training = training,
          .strategy = strategy,
          .backend = &train::backend_of(run_of(options)),
          .deterministic = !options.any_order,
          .threads = options.serve.threads};
}

// One batch serves all steps, as it does for the peer.
std::vector<std::int32_t> draw_tokens(const Options& options) {
  const auto vocab = static_cast<std::uint32_t>(model_of(options).vocab);
  const base::RandomKey key = base::random_key(1, base::hash_name("tokens"));
  std::vector<std::int32_t> drawn(static_cast<std::size_t>(options.samples * (options.sequence + 1)));
  for (std::size_t index = 0; index < drawn.size(); ++index)
    drawn[index] = static_cast<std::int32_t>(base::philox({static_cast<std::uint32_t>(index), 0, 0, 0}, key)[0] % vocab);
  return drawn;
}

// Each data rank has its part of the batch.
void fill_inputs(train::Session& session, const Options& options, const std::vector<std::int32_t>& drawn) {
  const auto first =
      static_cast<std::size_t>(session.plan().mesh.place(ops::Axis::data, session.rank()) * (options.samples / options.data));
  const auto tokens = session.input("train", "tokens", 0);
  const auto targets = session.input("train", "targets", 0);
  const auto positions = session.input("train", "positions", 0);
  const auto length = static_cast<std::size_t>(options.sequence);
  for (std::size_t index = 0; index < tokens.size(); ++index) {
    const std::size_t place = index % length;
    const std::size_t in_stream = (first + index / length) * (length + 1) + place;
    tokens[index] = drawn[in_stream];
    targets[index] = drawn[in_stream + 1];
    if (!positions.empty()) positions[index] = static_cast<std::int32_t>(place);
  }
  const auto samples = session.input("train", "samples", 0);
  for (std::size_t sample = 0; sample < samples.size(); ++sample) samples[sample] = static_cast<std::int32_t>(first + sample);
}

// The ranks beside the first: threads that take a step whenever it does.
class Others {
 public:
  Others(const Options& options, collectives::local::ThreadWorld& world) {
    for (int rank = 1; rank < options.data * options.tensor; ++rank) {
      threads_.emplace_back([this, &options, &world, rank] {
        train::SessionOptions own = session_options(options);
        own.transport = &world.transport(rank);
        train::Session session(own);
        const std::vector<std::int32_t> drawn = draw_tokens(options);
        for (std::uint32_t number = 1;; ++number) {
          wanted_.wait(number - 1);
          if (wanted_.load() == kEnd) return;
          fill_inputs(session, options, drawn);
          session.step({.learning_rate = 3e-4f, .step = number, .valid_targets = options.samples * options.sequence});
        }
      });
    }
  }
  ~Others() {
    wanted_.store(kEnd);
    wanted_.notify_all();
  }
  void step(std::uint32_t number) {
    wanted_.store(number);
    wanted_.notify_all();
  }

 private:
  static constexpr std::uint32_t kEnd = ~0u;
  std::atomic<std::uint32_t> wanted_{0};
  std::vector<std::jthread> threads_;
};

base::Json describe_work(const Options& options) {
  return base::Json::object({{"model", options.model},
                             {"parameters", model::parameter_count(model_of(options))},
                             {"batch", options.samples},
                             {"sequence", options.sequence},
                             {"dropout", options.dropout},
                             {"precision", config::name_of(options.precision)},
                             {"clip", options.clip},
                             {"device", config::name_of(options.device)},
                             {"deterministic", !options.any_order}});
}

void print_profile(const std::function<void(executor::Timeline*)>& step, int warmup) {
  for (int index = 0; index < warmup; ++index) step(nullptr);
  executor::Timeline timeline;
  const double total = bench::timed([&] { step(&timeline); }).wall;
  double inside = 0.0;
  fmt::print("{:>9} {:>6} {:>5}  {}\n", "ms", "share", "runs", "kernel");
  for (const executor::KernelTime& time : executor::by_kernel(timeline)) {
    inside += time.seconds;
    fmt::print("{:>9.2f} {:>5.1f}% {:>5}  {}\n", time.seconds * 1e3, 100.0 * time.seconds / total, time.runs, time.kernel);
  }
  fmt::print("{:>9.2f} {:>5.1f}%        between kernels\n{:>9.2f} 100.0%        the step\n", (total - inside) * 1e3,
             100.0 * (total - inside) / total, total * 1e3);
}

// What of the best step was computation and what were collectives, in seconds that this rank's threads computed.
struct Shares {
  double wall = 1e9;
  double compute = 0.0;
  double collectives = 0.0;

  void note(double seconds, const executor::Timeline& timeline) {
    if (seconds >= wall) return;
    *this = {.wall = seconds};
    for (const executor::TimelineEvent& event : timeline.events) {
      if (event.kernel.empty()) continue;
      const bool moves = event.kernel.ends_with(".data") || event.kernel.ends_with(".tensor");
      (moves ? collectives : compute) += event.processor;
    }
  }
};

void run_plans(const Options& options) {
  std::size_t procedures = 0;
  const auto plan = [&] { procedures = train::plan_session(session_options(options)).procedures.size(); };
  bench::serve(options.serve, plan, [&](double) {
    base::Json summary = describe_work(options);
    summary.set("procedures", procedures);
    return summary;
  });
}

void run_steps(const Options& options) {
  const base::Bytes reserve = train::capacity_of(run_of(options)).reserve;  // before the arena counts as memory in use
  collectives::local::ThreadWorld world(static_cast<int>(options.data * options.tensor));
  Others others(options, world);
  train::SessionOptions own = session_options(options);
  if (options.data * options.tensor > 1) own.transport = &world.transport(0);
  train::Session session(own);
  const std::int64_t tokens = options.samples * options.sequence;
  const std::vector<std::int32_t> drawn = draw_tokens(options);
  std::vector<double> losses;
  const auto step = [&](executor::Timeline* timeline) {
    const auto number = static_cast<std::uint32_t>(losses.size() + 1);
    others.step(number);
    fill_inputs(session, options, drawn);  // their memory is used for other things later in a step
    losses.push_back(session.step({.learning_rate = 3e-4f, .step = number, .valid_targets = tokens}, timeline).loss);
  };
  const bool several = options.data * options.tensor > 1;
  Shares shares;
  const auto noted_step = [&] {
    executor::Timeline timeline;
    const double seconds = bench::timed([&] { step(&timeline); }).wall;
    shares.note(seconds, timeline);
  };
  if (options.profile) return print_profile(step, options.serve.warmup);
  bench::serve(
      options.serve, [&] { several ? noted_step() : step(nullptr); },
      [&](double best) {
        base::Json summary = describe_work(options);
        bench::add(summary, {{"first_loss", losses.front()},
                             {"last_loss", losses.back()},
                             {"tokens_per_second", static_cast<double>(tokens) / best},
                             {"arena_bytes", session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::device)].count},
                             {"host_arena_bytes", session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::host)].count},
                             {"activation_bytes", lowering::most_activations(session.plan()).count},
                             {"reserve_bytes", reserve.count}});
        if (several) {
          bench::add(summary,
                     {{"best_wall", shares.wall}, {"compute_processor", shares.compute}, {"collectives_processor", shares.collectives}});
        }
        return summary;
      });
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Times training steps on random tokens");
  Options options;
  add_options(app, options);
  return bench::run_program(app, count, arguments, [&] { options.plan ? run_plans(options) : run_steps(options); });
}
