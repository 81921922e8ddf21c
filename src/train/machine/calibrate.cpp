#include "train/machine/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <tuple>

#include "base/cores.h"
#include "base/error.h"
#include "base/random.h"
#include "cluster/file.h"
#include "collectives/local/threads.h"
#include "cost/operator.h"
#include "executor/cpu/cpu_backend.h"
#include "families/families.h"
#include "io/files.h"
#include "observe/clock.h"
#include "plan/instructions.h"
#include "train/machine/calibrate_moves.h"
#include "train/machine/core_distance.h"
#include "train/session/session.h"

namespace plimsoll::train {

namespace {

using base::Bytes;
using base::DType;
using cluster::Sample;

constexpr int kSteps = 3;                  // of a model; the first is not counted
constexpr int kPasses = 2;                 // with the cores together
constexpr double kSecondsToRepeat = 85.0;  // no further pass is begun or gone on with after so long
// Of a mean is left out what took so many times as long as the median: somebody else had the core.
constexpr double kInterrupted = 3.0;
// Several layers up to this width, so that one's weights are not always in the cache; of wider models one fills it.
constexpr std::int64_t kSmallWidth = 256;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double undisturbed_mean(const std::vector<double>& values) {
  const double most = kInterrupted * median(values);
  double sum = 0.0;
  double count = 0.0;
  for (const double value : values) {
    if (value > most) continue;
    sum += value;
    count += 1.0;
  }
  return sum / count;
}

// ---- operators: steps of small models, instruction by instruction

struct SmallModel {
  model::Family family = families::gpt2();
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t vocab = 256;
  std::int64_t samples = 2;
  std::int64_t sequence = 64;
};

std::vector<SmallModel> models_to_run(bool brief) {
  std::vector<SmallModel> models{{.width = 64, .samples = 2}, {.width = 128, .vocab = 512, .samples = 4}};
  if (brief) return models;
  const std::vector<SmallModel> more{{.width = 256, .heads = 8, .vocab = 1024, .samples = 4, .sequence = 128},
                                     {.width = 128, .vocab = 256, .samples = 8, .sequence = 128},
                                     {.width = 256, .heads = 8, .vocab = 4096, .samples = 1, .sequence = 128},
                                     {.width = 256, .heads = 4, .vocab = 2048, .samples = 8, .sequence = 256},
                                     {.width = 512, .heads = 8, .vocab = 1024, .samples = 2, .sequence = 128},
                                     {.width = 512, .heads = 8, .vocab = 8192, .samples = 4, .sequence = 128},
                                     {.width = 768, .heads = 12, .vocab = 4096, .samples = 1, .sequence = 256},
                                     {.width = 768, .heads = 12, .vocab = 16384, .samples = 2, .sequence = 256},
                                     {.family = families::llama(), .width = 128, .vocab = 512, .samples = 4},
                                     {.family = families::llama(), .width = 256, .heads = 8, .vocab = 1024, .samples = 4, .sequence = 256},
                                     {.family = families::llama(), .width = 512, .heads = 8, .vocab = 2048, .samples = 2, .sequence = 256}};
  models.insert(models.end(), more.begin(), more.end());
  return models;
}

model::Model model_of(const SmallModel& small) {
  model::Model model = families::defaults(small.family);
  const bool grouped = model.family->has("rope.theta");  // of those shapes: fewer heads of keys, and a gate
  model.layers = small.width <= kSmallWidth ? 3 : 1;
  model.width = small.width;
  model.heads = small.heads;
  model.kv_heads = grouped ? small.heads / 2 : small.heads;
  model.head_dim = small.width / small.heads;
  model.ffn = grouped ? small.width * 8 / 3 / 32 * 32 : small.width * 4;
  model.context = small.sequence;
  model.vocab = small.vocab;
  return model;
}

void fill(Session& session, const SmallModel& small, std::int32_t micro_batches) {
  const base::RandomKey key = base::random_key(1, base::hash_name("calibrate"));
  for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    std::uint32_t drawn = 0;
    const auto draw = [&] { return base::philox({drawn++, static_cast<std::uint32_t>(micro_batch), 0, 0}, key)[0]; };
    for (const char* name : {"tokens", "targets"}) {
      for (std::int32_t& id : session.input(kTrain, name, micro_batch))
        id = static_cast<std::int32_t>(draw() % static_cast<std::uint32_t>(small.vocab));
    }
    const auto positions = session.input(kTrain, "positions", micro_batch);
    for (std::size_t index = 0; index < positions.size(); ++index)
      positions[index] = static_cast<std::int32_t>(index % static_cast<std::size_t>(small.sequence));
    const auto samples = session.input(kTrain, "samples", micro_batch);
    for (std::size_t index = 0; index < samples.size(); ++index) samples[index] = static_cast<std::int32_t>(index);
  }
}

using SampleKey = std::tuple<std::string, DType, std::int64_t, std::array<std::int64_t, 3>>;
using Times = std::map<SampleKey, std::vector<double>>;

// A timeline has the instructions of each stream's calls in their order, each call behind its own.
void collect(const plan::Plan& plan, std::int32_t rank, const executor::Timeline& timeline, Times& times) {
  const plan::Program& program = *plan::find_program(plan::class_of(plan, rank), kTrain);
  auto event = timeline.events.begin();
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      for (const plan::Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions) {
        const executor::TimelineEvent& ran = *event++;
        // One thread's own time does not count what other threads of the machine took from it.
        const double seconds = plan.threads == 1 && ran.processor > 0.0 ? ran.processor : ran.end - ran.begin;
        plan::match(
            instruction,
            [&](const plan::Compute& compute) {
              const std::vector<base::TensorType> inputs = plan::types_of(compute.inputs);
              const std::vector<base::TensorType> outputs = plan::types_of(compute.outputs);
              times[{std::string(ops::name_of(compute.op)), cost::type_of(inputs), plan.threads,
                     cost::extents_of(compute.op, inputs, outputs)}]
                  .push_back(std::max(seconds, 1e-9));
            },
            plan::kIgnoreOthers);
      }
      ++event;  // the call
    }
  }
}

// One model with one precision on so many ranks.
struct Unit {
  SmallModel small{};
  model::Precision precision = model::Precision::f32;
  int ranks = 1;
  int threads = 1;
};

std::vector<Unit> units_of(bool brief, int cores) {
  std::vector<Unit> units;
  for (const SmallModel& small : models_to_run(brief)) {
    for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16}) {
      units.push_back({.small = small, .precision = precision, .ranks = 1, .threads = cores});
      if (cores > 1) units.push_back({.small = small, .precision = precision, .ranks = 2, .threads = cores / 2});
    }
  }
  return units;
}

std::map<SampleKey, double> run_unit(const Unit& unit) {
  const auto& [small, precision, ranks, threads] = unit;
  Times times;
  constexpr std::int32_t kMicroBatches = 2;
  collectives::local::run_threads(ranks, [&](collectives::Transport& transport) {
    SessionOptions options{.forward = forward_of(model_of(small)), .name = "calibration", .training = {}};
    options.training.precision = precision;
    options.training.micro_batch = {.samples = small.samples, .sequence = small.sequence};
    options.training.accumulates = true;
    options.training.optimizer.clip = 1.0;
    options.micro_batches = kMicroBatches;
    options.strategy.data = ranks;
    options.transport = ranks > 1 ? &transport : nullptr;
    options.threads = threads;
    Session session(std::move(options));
    for (int step = 0; step < kSteps; ++step) {
      fill(session, small, kMicroBatches);
      executor::Timeline timeline;
      session.step({.learning_rate = 1e-5f,
                    .step = static_cast<std::uint32_t>(step),
                    .valid_targets = kMicroBatches * ranks * small.samples * small.sequence},
                   &timeline);
      if (step > 0 && session.rank() == 0) collect(session.plan(), 0, timeline, times);
    }
  });
  std::map<SampleKey, double> means;
  for (const auto& [key, seconds] : times) means[key] = undisturbed_mean(seconds);
  return means;
}

// ---- what follows from the samples

void set_rates(cluster::Device& device) {
  device.launch = 1e-3;
  for (const Sample& sample : device.samples) {
    device.launch = std::min(device.launch, sample.seconds);
    if (!sample.op.starts_with("linear")) continue;
    const double flops =
        2.0 * static_cast<double>(sample.extents[0]) * static_cast<double>(sample.extents[1]) * static_cast<double>(sample.extents[2]);
    double& rate = device.rates[sample.dtype];
    rate = std::max(rate, flops / sample.seconds);
  }
  device.vector_rate = device.rates.at(DType::f32) / 4.0;
  device.matrix_share = 1.0;
}

// ---- passes

// What one measurement gave, and the longer of the cores' round trips before and after it.
template <typename Value>
struct Measured {
  Value value{};
  double round_trip = 0.0;
};

// The measurements that were made with the cores together, or all where there is none.
template <typename Value>
std::vector<Value> best_placed(const std::vector<Measured<Value>>& measured, double least) {
  std::vector<Value> values;
  for (const Measured<Value>& each : measured) {
    if (!cores_apart(each.round_trip, least)) values.push_back(each.value);
  }
  if (!values.empty()) return values;
  for (const Measured<Value>& each : measured) values.push_back(each.value);
  return values;
}

class Passes {
 public:
  Passes(io::FileSystem& file_system, const CalibrationOptions& options, int cores)
      : file_system_(file_system), options_(options), cores_(cores), units_(units_of(options.brief, cores)), runs_(units_.size()) {}

  void measure() {
    last_round_trip_ = least_ = core_round_trip();
    const double begin = observe::seconds_now();
    // Where cores are never together again, the passes end with the time.
    for (int pass = 0; pass < (options_.brief ? 1 : 3 * kPasses); ++pass) {
      const auto late = [&] { return pass > 0 && observe::seconds_now() - begin > kSecondsToRepeat; };
      for (std::size_t index = 0; index < units_.size() && !late(); ++index) {
        if (together(runs_[index]) >= kPasses) continue;
        const SmallModel& small = units_[index].small;
        say(fmt::format("a {} of width {}, {} x {} tokens", small.family->name, small.width, small.samples, small.sequence));
        measure_into(runs_[index], [&] { return run_unit(units_[index]); });
      }
      if (late() || together(moves_) >= kPasses) continue;
      say("memory, ranks and the disk");
      measure_into(moves_, [&] { return measure_moves(file_system_, options_.scratch, cores_ > 1); });
    }
  }

  // Of an operator that several models have, the mean of their best.
  std::vector<Sample> samples() const {
    std::map<SampleKey, std::vector<double>> of_models;
    for (const auto& runs : runs_) {
      std::map<SampleKey, double> best;
      for (const std::map<SampleKey, double>& means : best_placed(runs, least_)) {
        for (const auto& [key, seconds] : means) {
          const auto [found, fresh] = best.try_emplace(key, seconds);
          if (!fresh) found->second = std::min(found->second, seconds);
        }
      }
      for (const auto& [key, seconds] : best) of_models[key].push_back(seconds);
    }
    std::vector<Sample> samples;
    for (const auto& [key, seconds] : of_models) {
      const auto& [op, dtype, threads, extents] = key;
      samples.push_back({.op = op, .dtype = dtype, .threads = threads, .extents = extents, .seconds = undisturbed_mean(seconds)});
    }
    return samples;
  }

  Moves best_moves() const {
    const std::vector<Moves> all = best_placed(moves_, least_);
    Moves best = all.front();
    for (const Moves& each : all) best = better_of(best, each);
    return best;
  }

  void report(Calibration& calibration) const {
    calibration.cluster.device.round_trip = least_;
    const auto count = [&](const auto& measured) {
      const int near = together(measured);
      calibration.runs += static_cast<int>(measured.size());
      calibration.apart += static_cast<int>(measured.size()) - near;
      if (near == 0) ++calibration.only_apart;
      for (const auto& each : measured) calibration.farthest = std::max(calibration.farthest, each.round_trip);
    };
    for (const auto& runs : runs_) count(runs);
    count(moves_);
  }

 private:
  void say(std::string_view what) const {
    if (options_.progress) options_.progress(what);
  }

  template <typename Value, typename Action>
  void measure_into(std::vector<Measured<Value>>& measured, const Action& action) {
    const double before = last_round_trip_;
    Value value = action();
    last_round_trip_ = core_round_trip();
    least_ = std::min(least_, last_round_trip_);
    measured.push_back({.value = std::move(value), .round_trip = std::max(before, last_round_trip_)});
  }

  template <typename Value>
  int together(const std::vector<Measured<Value>>& measured) const {
    return static_cast<int>(
        std::count_if(measured.begin(), measured.end(), [&](const auto& each) { return !cores_apart(each.round_trip, least_); }));
  }

  io::FileSystem& file_system_;
  const CalibrationOptions& options_;
  int cores_;
  std::vector<Unit> units_;
  std::vector<std::vector<Measured<std::map<SampleKey, double>>>> runs_;
  std::vector<Measured<Moves>> moves_;
  double last_round_trip_ = 0.0;
  double least_ = 0.0;
};

}  // namespace

Calibration calibrate(io::FileSystem& file_system, const CalibrationOptions& options) {
  const int cores = base::usable_cores();
  Calibration calibration{.cluster = {.name = "this", .origin = "measured here"}};
  cluster::Cluster& cluster = calibration.cluster;
  cluster::Device& device = cluster.device;
  device.name = fmt::format("processor of {} core{}", cores, cores == 1 ? "" : "s");
  device.memory = executor::cpu_backend().memory(0).total;
  device.reserve = Bytes{64ll << 20};
  device.cores = cores;

  Passes passes(file_system, options, cores);
  passes.measure();
  passes.report(calibration);
  device.samples = passes.samples();
  set_rates(device);
  const Moves moves = passes.best_moves();
  device.bandwidth = 2.0 * moves.copies;
  device.bandwidth_share = 1.0;
  cluster.host = {.memory = device.memory, .bandwidth = device.bandwidth, .disk = file_system.free_space(options.scratch)};
  if (cores > 1) cluster.links.push_back(exchange_link(moves));
  cluster.links.push_back({.name = "copies", .reach = cluster::Reach::host, .bandwidth = moves.copies, .latency = 1e-6});
  cluster.links.push_back(
      {.name = "disk", .reach = cluster::Reach::disk, .bandwidth = moves.disk, .latency = 1e-4, .per_node = 1, .both_ways = false});
  cluster::require_possible(cluster);
  return calibration;
}

io::Path calibration_path() {
  const char* settings = std::getenv("XDG_CONFIG_HOME");
  if (settings != nullptr && *settings != '\0') return io::Path(settings) / "plimsoll" / "this.json";
  const char* home = std::getenv("HOME");
  return io::Path(home == nullptr ? "." : home) / ".config" / "plimsoll" / "this.json";
}

std::optional<cluster::Cluster> calibrated_machine(io::FileSystem& file_system) {
  const io::Path path = calibration_path();
  if (!file_system.status(path)) return std::nullopt;
  cluster::Cluster cluster = cluster::parse_cluster(io::read_text(file_system, path, cluster::kLargestFile), path.string());
  cluster.origin = fmt::format("measured here, {}", path.string());
  return cluster;
}

void store_calibration(io::FileSystem& file_system, const io::Path& path, const cluster::Cluster& cluster) {
  if (path.has_parent_path()) io::make_directories(file_system, path.parent_path());
  io::replace_file(file_system, path, io::as_bytes(base::write_json(cluster::to_json(cluster)) + "\n"));
}

}  // namespace plimsoll::train
