#include "train/machine/calibrate_gpu.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/random.h"
#include "cost/operator.h"
#include "families/families.h"
#include "ops/op.h"
#include "plan/instructions.h"
#include "train/session/session.h"

namespace plimsoll::train {

namespace {

using base::Bytes;
using base::DType;

constexpr int kCountedSteps = 3;  // of a model that count
// Seconds of steps before them: what a GPU's clock is in training is decided by its power limit, which takes some tenths of a second to
// show.
constexpr double kWarming = 0.5;
constexpr std::int64_t kLargeCopy = std::int64_t{8} << 20;  // bytes: what a link takes for it is its rate
constexpr std::int64_t kSequence = 1024;

struct Shape {
  model::Family family = families::gpt2();
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t samples = 8;
};

std::vector<Shape> shapes_to_run(bool brief) {
  std::vector<Shape> shapes{{.width = 768, .heads = 12, .samples = 8}};
  if (brief) return shapes;
  const std::vector<Shape> more{{.width = 768, .heads = 12, .samples = 32},
                                {.width = 1024, .heads = 16, .samples = 8},
                                {.width = 1600, .heads = 25, .samples = 4},
                                {.width = 1600, .heads = 25, .samples = 16},
                                {.family = families::llama(), .width = 2048, .heads = 16, .samples = 8},
                                {.width = 2560, .heads = 20, .samples = 16},
                                {.family = families::llama(), .width = 4096, .heads = 32, .samples = 4},
                                {.width = 5120, .heads = 40, .samples = 8}};
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

model::Model model_of(const Shape& shape) {
  model::Model model = families::defaults(shape.family);
  const bool grouped = model.family->has("rope.theta");  // of those shapes: fewer heads of keys, and a gate
  model.layers = shape.width <= 2048 ? 6 : 2;            // so many that products are most of a step, as in training, or what is soon drawn
  model.width = shape.width;
  model.heads = shape.heads;
  model.kv_heads = grouped ? shape.heads / 4 : shape.heads;
  model.head_dim = shape.width / shape.heads;
  model.ffn = grouped ? shape.width * 8 / 3 / 256 * 256 : shape.width * 4;
  model.context = kSequence;
  model.vocab = 50304;
  return model;
}

// Ids for a micro-batch, drawn once: the device is to wait for them as little as in training.
std::vector<std::int32_t> draw_ids(std::int64_t count, std::int64_t vocabulary) {
  const base::RandomKey key = base::random_key(1, base::hash_name("calibrate"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::uint32_t index = 0; index < ids.size(); ++index)
    ids[index] = static_cast<std::int32_t>(base::philox({index, 0, 0, 0}, key)[0] % static_cast<std::uint32_t>(vocabulary));
  return ids;
}

void fill(Session& session, const std::vector<std::int32_t>& ids) {
  for (const char* name : {"tokens", "targets"}) std::ranges::copy(ids, session.input(kTrain, name, 0).begin());
  const auto positions = session.input(kTrain, "positions", 0);
  for (std::size_t index = 0; index < positions.size(); ++index) positions[index] = static_cast<std::int32_t>(index % kSequence);
  const auto samples = session.input(kTrain, "samples", 0);
  for (std::size_t index = 0; index < samples.size(); ++index) samples[index] = static_cast<std::int32_t>(index);
}

// What a kernel moves; of anything else next to nothing.
std::int64_t bytes_of(const plan::Instruction& instruction) {
  return plan::match(
      instruction,
      [](const plan::Compute& compute) {
        std::int64_t bytes = 1;
        for (const auto* operands : {&compute.inputs, &compute.outputs}) {
          for (const plan::Operand& operand : *operands) bytes += operand.type.bytes();
        }
        return bytes;
      },
      [](const auto&) -> std::int64_t { return 1; });
}

using GpuSampleKey = std::tuple<std::string, DType, std::array<std::int64_t, 3>>;

struct Took {
  double seconds = 0.0;
  double part = 1.0;  // of an event
};

struct GpuTimes {
  std::map<GpuSampleKey, std::vector<Took>> operators;
  std::map<plan::StreamKind, std::vector<double>> copies;  // bytes a second
  std::vector<double> streaming;                           // bytes a second of kernels that only stream
  std::vector<double> host_updates;                        // bytes a second of the host's memory
  double launch = 1e-3;                                    // the shortest instruction
};

// The value below which this share of them lies.
double quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void note(const plan::Compute& compute, const InstructionTime& time, double seconds, GpuTimes& measured) {
  const double rate = static_cast<double>(bytes_of(*time.instruction)) / seconds;
  const bool updates = ops::is_update(compute.op);
  const bool large = bytes_of(*time.instruction) >= 8 * kLargeCopy;
  if (time.stream == plan::StreamKind::host_compute) {
    if (updates && large) measured.host_updates.push_back(rate);
    return;
  }
  if (updates && large) measured.streaming.push_back(rate);
  if (time.part == 1.0) measured.launch = std::min(measured.launch, seconds);
  const std::vector<base::TensorType> inputs = plan::types_of(compute.inputs);
  const std::vector<base::TensorType> outputs = plan::types_of(compute.outputs);
  measured.operators[{std::string(ops::name_of(compute.op)), cost::type_of(inputs), cost::extents_of(compute.op, inputs, outputs)}]
      .push_back({seconds, time.part});
}

void note(const InstructionTime& time, GpuTimes& measured) {
  const double seconds = std::max(time.seconds, 1e-9);
  plan::match(
      *time.instruction, [&](const plan::Compute& compute) { note(compute, time, seconds, measured); },
      [&](const plan::Copy& copy) {
        const std::int64_t bytes = copy.from.type.bytes();
        if (bytes >= kLargeCopy) measured.copies[time.stream].push_back(static_cast<double>(bytes) / seconds);
      },
      plan::kIgnoreOthers);
}

void run_model(const executor::Backend& gpu, const Shape& shape, model::Precision precision, const strategy::Offload& offload,
               GpuTimes& measured) {
  const model::Model model = model_of(shape);
  SessionOptions options{.forward = forward_of(model), .name = "calibration", .training = {}};
  options.training.precision = precision;
  options.training.micro_batch = {.samples = shape.samples, .sequence = kSequence};
  options.training.optimizer.clip = 1.0;
  options.strategy.offload = offload;
  options.backend = &gpu;
  Session session(std::move(options));
  const plan::Program& program = *plan::find_program(session.plan().classes.at(0), kTrain);
  const std::vector<std::int32_t> ids = draw_ids(shape.samples * kSequence, model.vocab);
  std::uint32_t steps = 0;
  const auto step = [&](executor::Timeline* timeline) {
    fill(session, ids);
    session.step({.learning_rate = 1e-5f, .step = ++steps, .valid_targets = shape.samples * kSequence}, timeline);
  };
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kWarming) step(nullptr);
  for (int counted = 0; counted < kCountedSteps; ++counted) {
    executor::Timeline timeline;
    step(&timeline);
    for (const InstructionTime& time : instruction_times(session.plan(), program, timeline)) note(time, measured);
  }
}

// A step is one launch of a graph, and between the events that time an instruction is more than its kernel: at least what the shortest of
// all took, which has next to nothing to do.
double without_launch(const Took& took, double launch) { return std::max(took.seconds - launch * took.part, 0.1 * took.seconds); }

void set_rates(const GpuTimes& measured, cluster::Device& device) {
  device.launch = measured.launch;
  for (const auto& [key, all] : measured.operators) {
    const auto& [op, dtype, extents] = key;
    std::vector<double> seconds;
    for (const Took& each : all) seconds.push_back(without_launch(each, measured.launch));
    const double took = quantile(std::move(seconds), 0.5);
    device.samples.push_back({.op = op, .dtype = dtype, .threads = 0, .extents = extents, .seconds = took});
    if (!op.starts_with("linear") && !op.starts_with("scaled_linear")) continue;
    double& rate = device.rates[dtype];
    rate = std::max(rate, 2.0 * static_cast<double>(extents[0]) * static_cast<double>(extents[1]) * static_cast<double>(extents[2]) / took);
  }
  device.vector_rate = device.rates.at(DType::f32);
  device.matrix_share = 1.0;
  device.bandwidth = quantile(measured.streaming, 0.5);
  device.bandwidth_share = 1.0;
}

Shape moved_shape() { return {.width = 2560, .heads = 20, .samples = 4}; }
constexpr strategy::TierShare kHost{.host = 1.0};

// Bytes a second of the host's update beside the copies that belong to it; zero where none was large enough.
double host_update_rate(const executor::Backend& gpu, const CalibrationOptions& options) {
  if (options.progress) options.progress("the host's update");
  GpuTimes measured;
  run_model(gpu, moved_shape(), model::Precision::bf16, {.optimizer = kHost, .gradients = {}, .params = {}, .activations = {}}, measured);
  return measured.host_updates.empty() ? 0.0 : quantile(measured.host_updates, 0.5);
}

}  // namespace

std::vector<InstructionTime> instruction_times(const plan::Plan& plan, const plan::Program& program, const executor::Timeline& timeline) {
  std::vector<std::pair<const plan::Call*, plan::StreamKind>> calls;
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) calls.emplace_back(&call, stream.kind);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) { return a.first->moment < b.first->moment; });
  std::vector<InstructionTime> times;
  auto event = timeline.events.begin();
  for (const auto& [call, kind] : calls) {
    const std::vector<plan::Instruction>& instructions = plan.procedures[program.procedure_of(*call)].instructions;
    std::size_t next = 0;
    for (; event != timeline.events.end() && !event->kernel.empty(); ++event) {
      const auto is_of_event = [&](const plan::Instruction& instruction) {
        return plan::match(
            instruction, [&](const plan::Compute& compute) { return compute.kernel == event->kernel; }, [](const auto&) { return false; });
      };
      std::size_t end = next + 1;
      double bytes = next < instructions.size() ? static_cast<double>(bytes_of(instructions[next])) : 0.0;
      const auto events_left = std::find_if(event, timeline.events.end(), [](const auto& each) { return each.kernel.empty(); }) - event;
      while (end < instructions.size() && std::ssize(instructions) - static_cast<std::ptrdiff_t>(end) >= events_left &&
             (kind == plan::StreamKind::host_compute || is_of_event(instructions[end])))
        bytes += static_cast<double>(bytes_of(instructions[end++]));
      for (; next < std::min(end, instructions.size()); ++next) {
        const double part = static_cast<double>(bytes_of(instructions[next])) / bytes;
        times.push_back({&instructions[next], kind, (event->end - event->begin) * part, part});
      }
    }
    if (event != timeline.events.end()) ++event;  // the call
  }
  return times;
}

cluster::Cluster calibrate_gpu(const executor::Backend& gpu, cluster::Cluster around, const CalibrationOptions& options) {
  const executor::DeviceMemory memory = gpu.memory(0);
  const double early = host_update_rate(gpu, options);
  GpuTimes measured;
  for (const Shape& shape : shapes_to_run(options.brief)) {
    if (options.progress)
      options.progress(fmt::format("a {} of width {}, {} x {} tokens", shape.family->name, shape.width, shape.samples, kSequence));
    run_model(gpu, shape, model::Precision::bf16, {}, measured);
    if (shape.samples * shape.width <= 16 * 1600) run_model(gpu, shape, model::Precision::f32, {}, measured);
    if (shape.samples * shape.width >= 8 * 2048 && shape.width <= 2048) run_model(gpu, shape, model::Precision::fp8, {}, measured);
  }
  if (options.progress) options.progress("copies");
  // They have the host's memory to themselves where activations alone are moved.
  GpuTimes beside;
  run_model(gpu, moved_shape(), model::Precision::bf16, {.optimizer = {}, .gradients = {}, .params = {}, .activations = kHost}, beside);

  cluster::Cluster cluster = std::move(around);
  cluster.device = {.name = memory.name, .memory = memory.total, .reserve = memory.total - memory.free};
  set_rates(measured, cluster.device);
  std::erase_if(cluster.links, [](const cluster::Link& link) { return link.reach == cluster::Reach::host; });
  // The slower direction counts.
  double link = 0.0;
  for (const auto& [stream, rates] : beside.copies) {
    const double best = quantile(rates, 0.9);
    link = link == 0.0 ? best : std::min(link, best);
  }
  cluster.links.push_back({.name = "copies", .reach = cluster::Reach::host, .bandwidth = link, .latency = 1e-5});
  // Others on the machine take of its memory's rate for minutes at a time: what counts is the better of two moments.
  const double rate = std::max(early, host_update_rate(gpu, options));
  if (rate > 0.0) cluster.host.bandwidth = rate;
  cluster::require_possible(cluster);
  return cluster;
}

}  // namespace plimsoll::train
