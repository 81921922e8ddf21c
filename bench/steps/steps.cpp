// Whole training steps of a preset model on random tokens, the planning of them, or where their time goes:
//   bench_steps --model gpt2 --samples 4 --sequence 256 --precision f32 --threads 2
//   bench_steps --plan --steps 20      # times plan_session instead of steps
//   bench_steps --profile              # one step by kernel, as a table, and what bounds it
//   bench_steps --floor              # the step's matrix products as multiplications in registers, with nothing around them
//   bench_steps --bare 3.8 --data 2    # no model: two loops of 3.8 s of processor time, to see what the machine takes of such a step
//   bench_steps --model gpt2-xl --layers 60 --width 2048 --offload optimizer=host:0.5 --offload params=host
// bench/gpt2.py runs it side by side with bench/peers/torch_train.py; a step does the same work there.
#include <time.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include <fmt/ranges.h>

#include "base/random.h"
#include "collectives/local/threads.h"
#include "config/run.h"
#include "cost/operator.h"
#include "executor/core/bounds.h"
#include "families/families.h"
#include "lowering/fit.h"
#include "serve.h"
#include "steps/registers.h"
#include "strategy/legality.h"
#include "train/session/session.h"
#include "train/setup/setup.h"

namespace {

using namespace plimsoll;

struct Options {
  bench::ServeOptions serve;
  std::string model = "gpt2";
  std::int64_t samples = 4;
  std::int64_t sequence = 256;
  double dropout = 0.0;
  std::int64_t documents = 0;
  double clip = 0.0;
  model::Precision precision = model::Precision::f32;
  std::int64_t fp8_history = 0;
  std::vector<std::string> offload;  // "optimizer=host:0.5"
  std::int64_t layers = 0;           // 0: the preset's
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t micro_batches = 1;  // `samples` are those of each
  std::int64_t bucket = 0;         // bytes; 0: the strategy's own
  std::int64_t prefetch = 0;
  bool delayed = false;
  strategy::CarryUpdate carry = strategy::CarryUpdate::automatic;
  double device_limit = 0.0;  // GiB
  std::string disk_folder = "/tmp";
  std::int64_t data = 1;    // data ranks, as threads; `samples` are those of all of them
  std::int64_t tensor = 1;  // tensor ranks
  std::int64_t zero = 0;
  strategy::Recompute recompute = strategy::Recompute::none;
  std::int64_t recompute_every = 1;
  double recompute_memory = 0.0;
  config::Device device = config::Device::cpu;
  bool any_order = false;
  bool plan = false;
  bool floor = false;
  bool profile = false;
  double bare = 0.0;  // seconds
};

void add_options(CLI::App& app, Options& options) {
  bench::add_options(app, options.serve);
  std::map<std::string, model::Precision> precisions;
  for (const auto precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16, model::Precision::fp8}) {
    precisions.emplace(config::name_of(precision), precision);
  }
  app.add_option("--model", options.model, "a preset")->check(CLI::IsMember(families::preset_names()))->capture_default_str();
  app.add_option("--samples", options.samples)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sequence", options.sequence)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dropout", options.dropout, "everywhere the family has it")->check(CLI::Range(0.0, 0.99))->capture_default_str();
  app.add_option("--documents", options.documents, "in each sequence, kept apart by attention; 0: nothing is kept apart")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--clip", options.clip, "global gradient norm; 0 = off")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--precision", options.precision, "f32, bf16, fp16 or fp8")->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--fp8-history", options.fp8_history, "fp8: delayed scaling by so many steps; 0: current scaling");
  app.add_option("--offload", options.offload,
                 "optimizer, params, gradients or activations in a slower tier: optimizer=host, optimizer=disk:0.3");
  app.add_option("--layers", options.layers, "instead of the preset's")->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "instead of the preset's, with four times it in the MLP")->check(CLI::PositiveNumber);
  app.add_option("--heads", options.heads, "instead of the preset's")->check(CLI::PositiveNumber);
  app.add_option("--micro-batches", options.micro_batches, "in a step, each of --samples")->check(CLI::PositiveNumber);
  app.add_option("--bucket", options.bucket, "bytes")->check(CLI::PositiveNumber);
  app.add_option("--prefetch", options.prefetch, "blocks")->check(CLI::PositiveNumber);
  app.add_flag("--delayed", options.delayed, "updates are made beside the next step");
  std::map<std::string, strategy::CarryUpdate> carries{
      {"auto", strategy::CarryUpdate::automatic}, {"always", strategy::CarryUpdate::always}, {"never", strategy::CarryUpdate::never}};
  app.add_option("--carry", options.carry, "updates behind a verdict run under the next forward pass: auto, always or never")
      ->transform(CLI::CheckedTransformer(carries));
  app.add_option("--device-limit", options.device_limit, "GiB of device memory for the plan");
  app.add_option("--disk-folder", options.disk_folder, "of the disk tier");
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
  app.add_flag("--profile", options.profile, "also print one step's time by kernel and what bounds it")->excludes(plan);
  app.add_flag("--floor", options.floor, "time the multiplications of a step alone, in f32 and in registers")->excludes(plan);
  app.add_option("--bare", options.bare, "instead of steps: so many seconds of processor time on a thread for each rank")->excludes(plan);
}

model::Model model_of(const Options& options) {
  model::Model model = *families::preset(options.model);
  if (options.layers > 0) model.layers = options.layers;
  if (options.heads > 0) model.heads = model.kv_heads = options.heads;
  if (options.width > 0) {
    model.width = options.width;
    model.ffn = 4 * options.width;
  }
  if (options.width > 0 || options.heads > 0) model.head_dim = model.width / model.heads;
  model.dropout = model.attention_dropout = model.embedding_dropout = options.dropout;
  return model;
}

// "optimizer=host:0.5" adds to what is there.
void add_share(strategy::Offload& offload, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t colon = text.find(':');
  const std::string what = text.substr(0, equals);
  const std::string tier =
      equals == std::string::npos ? "" : text.substr(equals + 1, colon == std::string::npos ? colon : colon - equals - 1);
  const double share = colon == std::string::npos ? 1.0 : std::stod(text.substr(colon + 1));
  strategy::TierShare* to = what == "optimizer"     ? &offload.optimizer
                            : what == "params"      ? &offload.params
                            : what == "gradients"   ? &offload.gradients
                            : what == "activations" ? &offload.activations
                                                    : nullptr;
  if (to == nullptr || (tier != "host" && tier != "disk"))
    base::bad_input("--offload is \"{}\", expected WHAT=TIER or WHAT=TIER:SHARE, such as optimizer=host:0.5", text);
  (tier == "host" ? to->host : to->disk) = share;
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
  training.accumulates = options.micro_batches > 1;
  training.segmented = options.documents > 0;
  strategy::Strategy strategy;
  strategy.data = options.data;
  strategy.tensor = options.tensor;
  strategy.zero = options.zero;
  strategy.recompute = options.recompute;
  strategy.recompute_every = options.recompute_every;
  strategy.recompute_memory = options.recompute_memory;
  for (const std::string& text : options.offload) add_share(strategy.offload, text);
  if (options.bucket > 0) strategy.bucket = base::Bytes{options.bucket};
  if (options.prefetch > 0) strategy.prefetch = options.prefetch;
  strategy.delayed_update = options.delayed;
  strategy.carry_update = options.carry;
  strategy::require_legal(strategy, options.micro_batches);
  return {.forward = train::forward_of(model_of(options)),
          .name = options.model,
          .training = training,
          .micro_batches = static_cast<std::int32_t>(options.micro_batches),
          .strategy = strategy,
          .backend = &train::backend_of(run_of(options)),
          .disk_folder = options.disk_folder,
          .deterministic = !options.any_order,
          .threads = options.serve.threads};
}

std::int64_t tokens_of(const Options& options) { return options.samples * options.sequence * options.micro_batches; }

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
void fill_micro_batch(train::Session& session, const Options& options, const std::vector<std::int32_t>& drawn, std::int32_t micro_batch) {
  const auto first =
      static_cast<std::size_t>(session.plan().mesh.place(ops::Axis::data, session.rank()) * (options.samples / options.data));
  const auto tokens = session.input("train", "tokens", micro_batch);
  const auto targets = session.input("train", "targets", micro_batch);
  const auto positions = session.input("train", "positions", micro_batch);
  const auto segments = session.input("train", "segments", micro_batch);
  const auto length = static_cast<std::size_t>(options.sequence);
  for (std::size_t index = 0; index < tokens.size(); ++index) {
    const std::size_t place = index % length;
    const std::size_t in_stream = (first + index / length) * (length + 1) + place;
    tokens[index] = drawn[in_stream];
    targets[index] = drawn[in_stream + 1];
    if (!positions.empty()) positions[index] = static_cast<std::int32_t>(place);
    if (!segments.empty()) segments[index] = static_cast<std::int32_t>(place * static_cast<std::size_t>(options.documents) / length);
  }
  const auto samples = session.input("train", "samples", micro_batch);
  for (std::size_t sample = 0; sample < samples.size(); ++sample) samples[sample] = static_cast<std::int32_t>(first + sample);
}

void fill_inputs(train::Session& session, const Options& options, const std::vector<std::int32_t>& drawn) {
  for (std::int32_t micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch)
    fill_micro_batch(session, options, drawn, micro_batch);
}

// The ranks beside the first: threads that take a step whenever it does.
class Others {
 public:
  Others(const Options& options, collectives::local::ThreadWorld& world)
      : timelines_(static_cast<std::size_t>(options.data * options.tensor - 1)) {
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
          executor::Timeline& timeline = timelines_[static_cast<std::size_t>(rank - 1)];
          timeline = {};
          session.step({.learning_rate = 3e-4f, .step = number, .valid_targets = tokens_of(options)}, &timeline);
          ++done_;
          done_.notify_all();
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
  // Of all of them in a step, once it is over.
  const std::vector<executor::Timeline>& timelines_of(std::uint32_t number) const {
    const auto all = number * static_cast<std::uint32_t>(threads_.size());
    for (std::uint32_t done = done_.load(); done < all; done = done_.load()) done_.wait(done);
    return timelines_;
  }

 private:
  static constexpr std::uint32_t kEnd = ~0u;
  std::atomic<std::uint32_t> wanted_{0};
  std::atomic<std::uint32_t> done_{0};  // steps of all of them
  std::vector<executor::Timeline> timelines_;
  std::vector<std::jthread> threads_;
};

base::Json describe_work(const Options& options) {
  return base::Json::object({{"model", options.model},
                             {"parameters", families::parameter_count(model_of(options))},
                             {"batch", options.samples},
                             {"sequence", options.sequence},
                             {"micro_batches", options.micro_batches},
                             {"offload", fmt::format("{}", fmt::join(options.offload, " "))},
                             {"dropout", options.dropout},
                             {"precision", config::name_of(options.precision)},
                             {"clip", options.clip},
                             {"device", config::name_of(options.device)},
                             {"deterministic", !options.any_order}});
}

void print_profile(const plan::Plan& plan, const std::function<void(executor::Timeline*)>& step) {
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
  fmt::print("{}\n", executor::to_string(executor::bounds_of(*plan::find_program(plan.classes.at(0), "train"), timeline)));
}

// What of a step was computation and what were collectives, in seconds that a rank's threads computed: of the rank that computed
// longest, for which the others wait.
struct Shares {
  double wall = 1e9;
  double compute = 0.0;
  double collectives = 0.0;

  double beyond_compute() const { return wall - compute; }
  void note(const executor::Timeline& timeline) {
    Shares rank{.wall = wall};
    for (const executor::TimelineEvent& event : timeline.events) {
      if (event.kernel.empty()) continue;
      const bool moves = event.kernel.ends_with(".data") || event.kernel.ends_with(".tensor");
      (moves ? rank.collectives : rank.compute) += event.processor;
    }
    if (rank.compute > compute) *this = rank;
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

double seconds_since_start() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What the process holds now.
std::int64_t rss_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// As a card of that size would refuse.
void require_limit(const Options& options) {
  if (options.device_limit == 0.0) return;
  const base::Bytes limit{static_cast<std::int64_t>(options.device_limit * (std::int64_t{1} << 30))};
  const base::Bytes arena = train::plan_session(session_options(options)).classes.at(0).arena[static_cast<std::size_t>(plan::Tier::device)];
  if (arena > limit)
    base::not_legal("the plan needs {} of device memory, and --device-limit is {}", base::to_string(arena), base::to_string(limit));
}

void run_steps(const Options& options) {
  const train::Capacity capacity = train::capacity_of(run_of(options));  // before the arena counts as memory in use
  collectives::local::ThreadWorld world(static_cast<int>(options.data * options.tensor));
  Others others(options, world);
  train::SessionOptions own = session_options(options);
  if (options.data * options.tensor > 1) own.transport = &world.transport(0);
  require_limit(options);
  train::Session session(own);
  const std::int64_t tokens = tokens_of(options);
  const std::vector<std::int32_t> drawn = draw_tokens(options);
  std::vector<double> losses;
  double first_step = 0.0;  // from the start of the process to its end
  const auto step = [&](executor::Timeline* timeline) {
    const auto number = static_cast<std::uint32_t>(losses.size() + 1);
    others.step(number);
    fill_inputs(session, options, drawn);  // their memory is used for other things later in a step
    losses.push_back(session.step({.learning_rate = 3e-4f, .step = number, .valid_targets = tokens}, timeline).loss);
    if (losses.size() == 1) first_step = seconds_since_start();
  };
  const bool several = options.data * options.tensor > 1;
  Shares shares;  // of the step that the machine disturbed least: whatever it takes makes a step longer, and no thread's own time
  const auto noted_step = [&] {
    executor::Timeline timeline;
    const double seconds = bench::timed([&] { step(&timeline); }).wall;
    const std::vector<executor::Timeline>& beside = others.timelines_of(static_cast<std::uint32_t>(losses.size()));
    Shares now{.wall = seconds};
    now.note(timeline);
    for (const executor::Timeline& other : beside) now.note(other);
    if (now.beyond_compute() < shares.beyond_compute()) shares = now;
  };
  bench::serve(
      options.serve, [&] { several ? noted_step() : step(nullptr); },
      [&](double best) {
        base::Json summary = describe_work(options);
        bench::add(summary, {{"first_loss", losses.front()},
                             {"last_loss", losses.back()},
                             {"tokens_per_second", static_cast<double>(tokens) / best},
                             {"arena_bytes", session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::device)].count},
                             {"host_arena_bytes", session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::host)].count},
                             {"disk_arena_bytes", session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::disk)].count},
                             {"rss_bytes", rss_bytes()},
                             {"first_step_seconds", first_step},
                             {"activation_bytes", lowering::most_activations(session.plan()).count},
                             {"reserve_bytes", capacity.reserve.count},
                             {"host_reserve_bytes", capacity.host_reserve.count}});
        if (several) {
          bench::add(summary,
                     {{"wall", shares.wall}, {"compute_processor", shares.compute}, {"collectives_processor", shares.collectives}});
        }
        return summary;
      });
  if (options.profile) print_profile(session.plan(), step);
}

// Of the step's matrix products, what a mask hides left out.
double product_flops(const plan::Plan& plan) {
  const auto types_of = [](const std::vector<plan::Operand>& operands) {
    std::vector<base::TensorType> types;
    for (const plan::Operand& operand : operands) types.push_back(operand.type);
    return types;
  };
  double flops = 0.0;
  const plan::Program& program = *plan::find_program(plan.classes.at(0), "train");
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      for (const plan::Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions) {
        const auto* compute = std::get_if<plan::Compute>(&instruction);
        if (compute == nullptr) continue;
        const std::vector<base::TensorType> inputs = types_of(compute->inputs);
        const std::vector<base::TensorType> outputs = types_of(compute->outputs);
        if (cost::counted_flops(compute->op, inputs, outputs) == 0.0) continue;
        flops += ops::definition_of(compute->op).work(compute->op, inputs, outputs).flops;
      }
    }
  }
  return flops;
}

void run_floor(const Options& options) {
  const double flops = product_flops(train::plan_session(session_options(options)));
  const auto step = [&] { bench::multiply_in_registers(flops, options.serve.threads); };
  bench::serve(options.serve, step,
               [&](double best) { return base::Json::object({{"flops", flops}, {"flops_per_second", flops / best}}); });
}

// What others take of the machine while as many threads as there are ranks do nothing but count.
void run_bare(const Options& options) {
  const auto count_on = [&] {
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    for (const double start = now(); now() - start < options.bare;) {
    }
  };
  const auto step = [&] {
    std::vector<std::jthread> threads;
    for (std::int64_t rank = 0; rank < options.data * options.tensor; ++rank) threads.emplace_back(count_on);
  };
  bench::serve(options.serve, step, [&](double best) { return base::Json::object({{"lost", best - options.bare}}); });
}

}  // namespace

int main(int count, char** arguments) {
  seconds_since_start();
  CLI::App app("Times training steps on random tokens");
  Options options;
  add_options(app, options);
  return bench::run_program(app, count, arguments, [&] {
    if (options.bare > 0.0) return run_bare(options);
    if (options.floor) return run_floor(options);
    options.plan ? run_plans(options) : run_steps(options);
  });
}
