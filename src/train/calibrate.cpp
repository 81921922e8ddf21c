#include "train/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "cluster/file.h"
#include "collectives/local/threads.h"
#include "cost/operator.h"
#include "executor/cpu/cpu_backend.h"
#include "io/files.h"
#include "train/session.h"

namespace plimsoll::train {

namespace {

using base::Bytes;
using base::DType;
using cluster::Sample;

constexpr std::int64_t kLargestFile = std::int64_t{64} << 20;
constexpr std::size_t kCopied = std::size_t{64} << 20;
constexpr std::size_t kOnDisk = std::size_t{512} << 20;
constexpr std::size_t kDiskBlock = std::size_t{8} << 20;
constexpr int kSteps = 3;  // of a model; the first is not counted
constexpr int kPasses = 2;
// Of a mean is left out what took so many times as long as the median: somebody else had the core.
constexpr double kInterrupted = 3.0;
// Several layers up to this width, so that one's weights are not always in the cache; of wider models one fills it.
constexpr std::int64_t kSmallWidth = 256;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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
  model::Family family = model::Family::gpt2;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t vocab = 256;
  std::int64_t samples = 2;
  std::int64_t sequence = 64;
};

std::vector<SmallModel> models_to_run(bool brief) {
  using model::Family;
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
                                     {.family = Family::llama, .width = 128, .vocab = 512, .samples = 4},
                                     {.family = Family::llama, .width = 256, .heads = 8, .vocab = 1024, .samples = 4, .sequence = 256},
                                     {.family = Family::llama, .width = 512, .heads = 8, .vocab = 2048, .samples = 2, .sequence = 256}};
  models.insert(models.end(), more.begin(), more.end());
  return models;
}

model::Model model_of(const SmallModel& small) {
  model::Model model = model::family_defaults(small.family);
  model.layers = small.width <= kSmallWidth ? 3 : 1;
  model.width = small.width;
  model.heads = small.heads;
  model.kv_heads = small.family == model::Family::llama ? small.heads / 2 : small.heads;
  model.head_dim = small.width / small.heads;
  model.ffn = small.family == model::Family::llama ? small.width * 8 / 3 / 32 * 32 : small.width * 4;
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
      for (std::int32_t& id : session.input("train", name, micro_batch))
        id = static_cast<std::int32_t>(draw() % static_cast<std::uint32_t>(small.vocab));
    }
    const auto positions = session.input("train", "positions", micro_batch);
    for (std::size_t index = 0; index < positions.size(); ++index)
      positions[index] = static_cast<std::int32_t>(index % static_cast<std::size_t>(small.sequence));
    const auto samples = session.input("train", "samples", micro_batch);
    for (std::size_t index = 0; index < samples.size(); ++index) samples[index] = static_cast<std::int32_t>(index);
  }
}

using SampleKey = std::tuple<std::string, DType, std::int64_t, std::array<std::int64_t, 3>>;
using Times = std::map<SampleKey, std::vector<double>>;

DType type_of(ops::Types types) {
  for (const base::TensorType& type : types) {
    if (base::is_float(type.dtype)) return type.dtype;
  }
  return DType::f32;
}

// A timeline has the instructions of each stream's calls in their order, each call behind its own.
void collect(const plan::Plan& plan, std::int32_t rank, const executor::Timeline& timeline, Times& times) {
  const plan::Program& program = *plan::find_program(plan::class_of(plan, rank), "train");
  auto event = timeline.events.begin();
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      for (const plan::Instruction& instruction : plan.procedures[call.procedure].instructions) {
        const executor::TimelineEvent& ran = *event++;
        const auto* compute = std::get_if<plan::Compute>(&instruction);
        if (compute == nullptr) continue;
        std::vector<base::TensorType> inputs;
        std::vector<base::TensorType> outputs;
        for (const plan::Operand& operand : compute->inputs) inputs.push_back(operand.type);
        for (const plan::Operand& operand : compute->outputs) outputs.push_back(operand.type);
        // One thread's own time does not count what other threads of the machine took from it.
        const double seconds = plan.threads == 1 && ran.processor > 0.0 ? ran.processor : ran.end - ran.begin;
        times[{std::string(ops::name_of(compute->op)), type_of(inputs), plan.threads, cost::extents_of(compute->op, inputs, outputs)}]
            .push_back(std::max(seconds, 1e-9));
      }
      ++event;  // the call
    }
  }
}

void run_model(const SmallModel& small, model::Precision precision, int ranks, int threads, Times& times) {
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
}

// ---- links

// Seconds of one call of `action` by two ranks at once.
double exchanged(const std::function<void(collectives::Group&)>& action, int repeats) {
  double seconds = 0.0;
  collectives::local::run_threads(2, [&](collectives::Transport& transport) {
    const std::unique_ptr<collectives::Group> world = transport.make_world("calibration");
    action(*world);
    world->barrier();
    const double begin = now();
    for (int repeat = 0; repeat < repeats; ++repeat) action(*world);
    world->barrier();
    if (world->rank() == 0) seconds = (now() - begin) / repeats;
  });
  return seconds;
}

cluster::Link measured_exchange() {
  constexpr std::size_t kSmall = 4096;
  constexpr std::size_t kLarge = std::size_t{16} << 20;
  const auto all_reduce = [](std::size_t bytes) {
    return [bytes](collectives::Group& group) {
      thread_local std::vector<std::byte> data;
      data.resize(bytes);
      group.all_reduce(data, data, DType::f32, collectives::Reduction::sum);
    };
  };
  const auto all_gather = [](std::size_t bytes) {
    return [bytes](collectives::Group& group) {
      thread_local std::vector<std::byte> part;
      thread_local std::vector<std::byte> all;
      part.resize(bytes / 2);
      all.resize(bytes);
      const std::array<std::int64_t, 2> counts{static_cast<std::int64_t>(bytes / 8), static_cast<std::int64_t>(bytes / 8)};
      group.all_gather(part, all, counts, DType::f32);
    };
  };
  cluster::Link link{.name = "memory", .reach = cluster::Reach::inside};
  link.latency = exchanged(all_gather(kSmall), 2000);
  const double large = static_cast<double>(kLarge);
  link.bandwidth = large / 2 / std::max(exchanged(all_gather(kLarge), 10) - link.latency, 1e-6);
  const double adding = exchanged(all_reduce(kLarge), 10) - link.latency - large / link.bandwidth;
  if (adding > 0.0) link.sum_rate = large / 2 / adding;
  return link;
}

double copy_rate() {
  std::vector<std::byte> from(kCopied, std::byte{1});
  std::vector<std::byte> to(kCopied);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = now();
    std::memcpy(to.data(), from.data(), kCopied);
    from[0] = to[kCopied - 1];
    seconds.push_back(now() - begin);
  }
  return static_cast<double>(kCopied) / median(seconds);
}

// Bytes a second of writing and reading at once, with as many transfers under way as the disk tier has.
double disk_rate(io::FileSystem& file_system, const io::Path& folder) {
  constexpr std::int64_t kTransfers = 8;
  const io::Path path = folder / ".plimsoll-calibration";
  io::remove_tree(file_system, path);
  io::File file(file_system, path, io::OpenMode::scratch);
  file_system.remove(path);
  const auto share = [&](bool write, std::int64_t first, std::int64_t step) {
    const std::unique_ptr<std::byte, void (*)(void*)> block(static_cast<std::byte*>(std::aligned_alloc(4096, kDiskBlock)), std::free);
    std::memset(block.get(), 1, kDiskBlock);
    const std::span<std::byte> data(block.get(), kDiskBlock);
    for (std::int64_t number = first; number < static_cast<std::int64_t>(kOnDisk / kDiskBlock); number += step) {
      const std::int64_t offset = number * static_cast<std::int64_t>(kDiskBlock);
      write ? file.write_at(offset, data) : file.read_exactly(offset, data);
    }
  };
  base::in_parallel(kTransfers, [&](std::int64_t lane) { share(true, lane, kTransfers); });  // so that there is something to read
  const double begin = now();
  base::in_parallel(kTransfers, [&](std::int64_t lane) { share(lane % 2 == 0, lane / 2, kTransfers / 2); });
  return 2.0 * static_cast<double>(kOnDisk) / (now() - begin);
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

}  // namespace

cluster::Cluster calibrate(io::FileSystem& file_system, const CalibrationOptions& options) {
  const auto say = [&](std::string_view what) {
    if (options.progress) options.progress(what);
  };
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cluster::Cluster cluster{.name = "this", .origin = "measured here"};
  cluster::Device& device = cluster.device;
  device.name = fmt::format("processor of {} core{}", cores, cores == 1 ? "" : "s");
  device.memory = executor::cpu_backend().memory(0).total;
  device.reserve = Bytes{64ll << 20};
  device.cores = cores;

  std::map<SampleKey, double> best;
  for (int pass = 0; pass < (options.brief ? 1 : kPasses); ++pass) {
    Times times;
    for (const SmallModel& small : models_to_run(options.brief)) {
      say(fmt::format("a {} of width {}, {} x {} tokens", model::name_of(small.family), small.width, small.samples, small.sequence));
      for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16}) {
        run_model(small, precision, 1, cores, times);
        if (cores > 1) run_model(small, precision, 2, cores / 2, times);
      }
    }
    for (const auto& [key, seconds] : times) {
      const double mean = undisturbed_mean(seconds);
      const auto [found, fresh] = best.try_emplace(key, mean);
      if (!fresh) found->second = std::min(found->second, mean);
    }
  }
  for (const auto& [key, seconds] : best) {
    const auto& [op, dtype, threads, extents] = key;
    device.samples.push_back({.op = op, .dtype = dtype, .threads = threads, .extents = extents, .seconds = seconds});
  }
  set_rates(device);

  say("memory and ranks");
  const double copies = copy_rate();
  device.bandwidth = 2.0 * copies;
  device.bandwidth_share = 1.0;
  cluster.host = {.memory = device.memory, .bandwidth = device.bandwidth, .disk = file_system.free_space(options.scratch)};
  if (cores > 1) cluster.links.push_back(measured_exchange());
  cluster.links.push_back({.name = "copies", .reach = cluster::Reach::host, .bandwidth = copies, .latency = 1e-6});
  say("the disk");
  cluster.links.push_back({.name = "disk",
                           .reach = cluster::Reach::disk,
                           .bandwidth = disk_rate(file_system, options.scratch),
                           .latency = 1e-4,
                           .per_node = 1,
                           .both_ways = false});
  cluster::require_possible(cluster);
  return cluster;
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
  cluster::Cluster cluster = cluster::parse_cluster(io::read_text(file_system, path, kLargestFile), path.string());
  cluster.origin = fmt::format("measured here, {}", path.string());
  return cluster;
}

void store_calibration(io::FileSystem& file_system, const io::Path& path, const cluster::Cluster& cluster) {
  if (path.has_parent_path()) io::make_directories(file_system, path.parent_path());
  io::replace_file(file_system, path, io::as_bytes(base::write_json(cluster::to_json(cluster)) + "\n"));
}

}  // namespace plimsoll::train
