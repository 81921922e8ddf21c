// The AdamW update of a preset's parameters, f32 throughout, as training does it: one kernel call per tensor, operands
// in one arena. With --kind stream a plain loop moves the same 28 bytes a parameter (4 reads, 3 writes) and computes
// next to nothing: what the machine's memory allows.
//   bench_adamw --model gpt2 --threads 2
// bench/adamw.py runs both side by side with bench/peers/torch_adamw.py.
#include <map>
#include <span>

#include "families/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "ops/step_scalars.h"
#include "serve.h"
#include "storage/host_arena.h"
#include "train/session/session.h"

namespace {

using namespace plimsoll;
using base::TensorType;
using kernels::cpu::Tensor;

constexpr std::int64_t kBytesPerParameter = 28;

enum class Kind { adamw, stream };

struct Options {
  bench::ServeOptions serve;
  std::string model = "gpt2";
  Kind kind = Kind::adamw;
};

void add_options(CLI::App& app, Options& options) {
  bench::add_options(app, options.serve);
  app.add_option("--model", options.model, "a preset")->check(CLI::IsMember(families::preset_names()))->capture_default_str();
  const std::map<std::string, Kind> kinds{{"adamw", Kind::adamw}, {"stream", Kind::stream}};
  app.add_option("--kind", options.kind, "adamw or stream")->transform(CLI::CheckedTransformer(kinds));
}

std::vector<TensorType> parameter_types(const Options& options) {
  const train::SessionOptions session{
      .forward = train::forward_of(*families::preset(options.model)), .name = options.model, .training = {}};
  std::vector<TensorType> types;
  for (const plan::Buffer& buffer : train::plan_session(session).classes.at(0).buffers) {
    if (buffer.kind == plan::BufferKind::parameter) types.push_back(buffer.type);
  }
  return types;
}

// What one tensor's update reads and writes.
struct Operands {
  Tensor gradient, weight, m, v;
};

class Parameters {
 public:
  explicit Parameters(const std::vector<TensorType>& types) : arena_(total_bytes(types)) {
    base::Bytes offset;
    const auto place = [&](const TensorType& type, float value) {
      Tensor tensor{arena_.at(offset), type};
      offset = offset + padded(type);
      std::fill_n(tensor.as<float>(), type.shape.elements(), value);
      return tensor;
    };
    for (const TensorType& type : types) {
      all_.push_back({.gradient = place(type, 1e-3f), .weight = place(type, 0.02f), .m = place(type, 0.0f), .v = place(type, 0.0f)});
      count_ += type.shape.elements();
    }
  }

  const std::vector<Operands>& all() const { return all_; }
  std::int64_t count() const { return count_; }

 private:
  static base::Bytes padded(const TensorType& type) {
    return base::Bytes{(type.bytes() + plan::kAlignment.count - 1) / plan::kAlignment.count * plan::kAlignment.count};
  }
  static base::Bytes total_bytes(const std::vector<TensorType>& types) {
    base::Bytes total;
    for (const TensorType& type : types) total = total + base::Bytes{4 * padded(type).count};
    return total;
  }

  storage::HostArena arena_;
  std::vector<Operands> all_;
  std::int64_t count_ = 0;
};

void adamw_step(const Parameters& parameters, ops::StepScalars& scalars, int threads) {
  static const ops::Op op = [] {
    ops::Update update = ops::Update::by(ops::update_rule("adamw"));
    update.weight_decay = 0.1;
    return update;
  }();
  const Tensor numbers{&scalars, ops::step_scalars_type()};
  for (const Operands& each : parameters.all()) {
    const Tensor inputs[] = {numbers, each.gradient, each.weight, each.m, each.v};
    const TensorType input_types[] = {numbers.type, each.gradient.type, each.weight.type, each.m.type, each.v.type};
    const std::span<const Tensor> outputs = std::span(inputs).subspan(2);
    const std::span<const TensorType> output_types = std::span(input_types).subspan(2);
    const ops::KernelChoice choice = kernels::cpu::choose({op, input_types, output_types, threads});
    kernels::cpu::kernel_named(choice.name).run({op, inputs, outputs, nullptr, threads});
  }
  ++scalars.updates;
}

void stream_step(const Parameters& parameters, int threads) {
  constexpr std::int64_t kGrain = 8192;
  for (const Operands& each : parameters.all()) {
    const auto* gradient = each.gradient.as<const float>();
    auto* weight = each.weight.as<float>();
    auto* m = each.m.as<float>();
    auto* v = each.v.as<float>();
    kernels::cpu::parallel_ranges(threads, each.weight.type.shape.elements(), kGrain, [=](std::int64_t begin, std::int64_t end, int) {
#pragma omp simd
      for (std::int64_t index = begin; index < end; ++index) {
        weight[index] += gradient[index];
        m[index] += gradient[index];
        v[index] += gradient[index];
      }
    });
  }
}

void run(const Options& options) {
  const Parameters parameters(parameter_types(options));
  ops::StepScalars scalars;
  scalars.learning_rate = 3e-4f;
  const int threads = options.serve.threads;
  const auto step = [&] { options.kind == Kind::adamw ? adamw_step(parameters, scalars, threads) : stream_step(parameters, threads); };
  bench::serve(options.serve, step, [&](double best) {
    return base::Json::object({{"model", options.model},
                               {"parameters", parameters.count()},
                               {"tensors", parameters.all().size()},
                               {"parameters_per_second", static_cast<double>(parameters.count()) / best},
                               {"bytes_per_second", static_cast<double>(kBytesPerParameter * parameters.count()) / best}});
  });
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Times the AdamW update of all parameters of a model");
  Options options;
  add_options(app, options);
  return bench::run_program(app, count, arguments, [&] { run(options); });
}
