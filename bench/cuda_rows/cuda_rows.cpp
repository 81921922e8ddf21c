// What the row and element kernels reach of the device's memory rate, at the sizes of GPT-2 124M (32 x 1024 tokens) and 1.5B
// (16 x 1024 tokens), against a copy on the same device. Each kernel works through several sets of operands in turn, so that none
// finds its operands in the caches. Times are medians over launches, by events.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cpu/reference/convert.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/table.h"
#include "ops/build_cases.h"

namespace plimsoll::op_cases {
namespace {

namespace cuda = kernels::cuda;
using cuda::check;

constexpr std::int64_t kCacheBytes = std::int64_t{256} << 20;  // a set of operands is dealt out again after at least so many bytes
constexpr std::int64_t kRandomRun = 65'537;                    // prime, so that rows do not repeat each other
constexpr int kLaunches = 24;

class Arena {
 public:
  explicit Arena(std::int64_t bytes) : bytes_(bytes) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  ~Arena() { cudaFree(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void clear() { used_ = 0; }
  bool has(std::int64_t bytes) const { return used_ + bytes + 1024 <= bytes_; }
  std::byte* take(std::int64_t bytes) {
    std::byte* piece = data_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    return piece;
  }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_;
  std::int64_t used_ = 0;
};

std::vector<std::byte> values_of(const Input& input, std::uint64_t salt) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(input.type.bytes()));
  if (const auto* scalars = std::get_if<ops::StepScalars>(&input.source)) {
    std::copy_n(reinterpret_cast<const std::byte*>(scalars), sizeof *scalars, bytes.data());
    return bytes;
  }
  // Of statistics that another operator would make, and of angles, the size is all that matters here.
  const bool made = std::holds_alternative<Made>(input.source) || std::holds_alternative<Rotations>(input.source);
  const Input drawn = made ? Input{input.type, Reals{.positive = true}} : input;
  const std::int64_t run = std::min(kRandomRun, input.type.shape.elements());
  const TensorType run_type{input.type.dtype, Shape{run}};
  std::vector<std::byte> piece(static_cast<std::size_t>(run_type.bytes()));
  kernels::cpu::reference::store({run_type.shape, draw_values(drawn, run, salt)}, piece.data(), run_type);
  for (std::size_t at = 0; at < bytes.size(); at += piece.size())
    std::copy_n(piece.data(), std::min(piece.size(), bytes.size() - at), bytes.data() + at);
  return bytes;
}

struct Operands {
  std::vector<cuda::Tensor> inputs, outputs;
};

Operands place(const Case& test, Arena& arena) {
  Operands operands;
  std::uint64_t salt = 1;
  for (const Input& input : test.inputs) {
    operands.inputs.push_back({arena.take(input.type.bytes()), input.type});
    const std::vector<std::byte> values = values_of(input, ++salt);
    check(cudaMemcpy(operands.inputs.back().data, values.data(), values.size(), cudaMemcpyHostToDevice), "upload");
  }
  for (const TensorType& type : test.output_types()) operands.outputs.push_back({nullptr, type});
  for (const ops::Alias& alias : ops::aliases_of(test.op)) {
    if (alias.required)
      operands.outputs[static_cast<std::size_t>(alias.output)].data = operands.inputs[static_cast<std::size_t>(alias.input)].data;
  }
  for (cuda::Tensor& output : operands.outputs) {
    if (output.data == nullptr) output.data = arena.take(output.type.bytes());
  }
  return operands;
}

// Median seconds of one call of `launch`.
double seconds_of(const std::function<void(int)>& launch) {
  std::vector<cudaEvent_t> events(kLaunches + 1);
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "cudaEventCreate");
  for (int turn = 0; turn < 3; ++turn) launch(turn);
  check(cudaDeviceSynchronize(), "warming up");
  check(cudaEventRecord(events[0], nullptr), "cudaEventRecord");
  for (int turn = 0; turn < kLaunches; ++turn) {
    launch(turn);
    check(cudaEventRecord(events[static_cast<std::size_t>(turn) + 1], nullptr), "cudaEventRecord");
  }
  check(cudaDeviceSynchronize(), "timing");
  std::vector<float> times;
  for (int turn = 0; turn < kLaunches; ++turn) {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, events[static_cast<std::size_t>(turn)], events[static_cast<std::size_t>(turn) + 1]), "time");
    times.push_back(milliseconds);
  }
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  std::nth_element(times.begin(), times.begin() + kLaunches / 2, times.end());
  return static_cast<double>(times[kLaunches / 2]) * 1e-3;
}

void print(const std::string& name, double bytes, double seconds, double ceiling) {
  std::printf("%-118s %9.1f MB %8.1f us %6.2f TB/s %4.0f%%\n", name.c_str(), bytes * 1e-6, seconds * 1e6, bytes / seconds * 1e-12,
              100.0 * bytes / seconds / ceiling);
  std::fflush(stdout);
}

void time_case(const Case& test, Arena& arena, double ceiling) {
  const std::vector<TensorType> inputs = test.input_types();
  const std::vector<TensorType> outputs = test.output_types();
  const ops::KernelQuery query{test.op, inputs, outputs, 1, true};
  const ops::KernelChoice choice = cuda::choose(query);
  const cuda::Kernel& kernel = cuda::kernel_named(choice.name);
  const double bytes = ops::definition_of(test.op).work(test.op, inputs, outputs).bytes;
  const std::int64_t all = static_cast<std::int64_t>(ops::bytes_of(inputs, outputs)) + choice.workspace;
  arena.clear();
  std::byte* workspace = arena.take(choice.workspace);
  std::vector<Operands> sets;
  for (std::int64_t placed = 0; sets.empty() || (placed < kCacheBytes && sets.size() < 8); placed += all)
    sets.push_back(place(test, arena));
  const double seconds = seconds_of([&](int turn) {
    const Operands& operands = sets[static_cast<std::size_t>(turn) % sets.size()];
    kernel.launch({test.op, operands.inputs, operands.outputs, workspace, nullptr}, nullptr);
  });
  print(choice.name + "  " + test.name(), bytes, seconds, ceiling);
}

std::vector<Case> cases() {
  using ops::ActivationKind;
  using ops::NormKind;
  constexpr DType bf16 = DType::bf16;
  std::vector<Case> all;
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{32, 768}, {16, 1600}}) {
    const Shape x{rows, 1024, width};
    const Shape inner{rows, 1024, 4 * width};
    all.push_back(norm_case({.kind = NormKind::layer, .bias = true}, x, bf16));
    all.push_back(norm_case({.kind = NormKind::layer, .bias = true, .residual = true}, x, bf16));
    all.push_back(norm_case({.kind = NormKind::layer, .bias = true, .residual = true, .rate = 0.1, .site = 1}, x, bf16));
    all.push_back(norm_grad_case({.kind = NormKind::layer, .bias = true}, x, bf16));
    all.push_back(norm_grad_case({.kind = NormKind::layer, .bias = true, .has_dsum = true}, x, bf16));
    all.push_back(bias_grad_case(inner, bf16, DType::f32));
    all.push_back(bias_grad_case(x, bf16, DType::f32));
    all.push_back(activation_case(ActivationKind::gelu_tanh, inner, bf16));
    all.push_back(activation_grad_case(ActivationKind::gelu_tanh, inner, bf16));
    all.push_back(dropout_case(0.1, x, bf16));
    all.push_back(add_case(x, bf16));
    all.push_back(embed_case(Shape{rows, 1024}, {50257, 1024}, width, bf16));
    all.push_back(embed_grad_case(Shape{rows, 1024}, 50257, width, bf16, DType::bf16));
    all.push_back(embed_grad_case(Shape{rows, 1024}, 1024, width, bf16, DType::f32));
  }
  const Shape llama{8, 1024, 4096};
  all.push_back(norm_case({.kind = NormKind::rms, .residual = true}, llama, bf16));
  all.push_back(norm_grad_case({.kind = NormKind::rms, .has_dsum = true}, llama, bf16));
  all.push_back(norm_case({.kind = NormKind::rms}, llama, DType::f32));
  all.push_back(gate_case(ActivationKind::silu, Shape{8, 1024, 22016}, bf16));
  all.push_back(gate_grad_case(ActivationKind::silu, Shape{8, 1024, 22016}, bf16));
  all.push_back(activation_case(ActivationKind::gelu_erf, Shape{8, 1024, 11008}, bf16));
  all.push_back(activation_grad_case(ActivationKind::gelu_erf, Shape{8, 1024, 11008}, bf16));
  all.push_back(rope_case({.heads = {32, 8, 128}}, 16, 1024, bf16));
  all.push_back(qk_norm_case({.heads = {32, 8, 128}}, 16, 1024, bf16));
  all.push_back(qk_norm_grad_case({.heads = {32, 8, 128}}, 16, 1024, bf16));
  all.push_back(cast_case(Shape{100'000'000}, DType::f32, bf16));
  all.push_back(cross_entropy_case(Shape{4096, 50304}, bf16));
  all.push_back(cross_entropy_case(Shape{4096, 50257}, bf16));
  all.push_back(cross_entropy_grad_case(Shape{4096, 50304}, bf16));
  all.push_back(sum_case(ops::SquaredNorm{}, Shape{100'000'000}, bf16));
  all.push_back(sum_case(ops::SquaredNorm{}, Shape{100'000'000}, DType::f32));
  all.push_back(sum_case(ops::SquaredNorm{}, Shape{768, 3072}, bf16));
  all.push_back(adam_case({.weight_decay = 0.1, .copy = true}, Shape{100'000'000}, bf16, bf16, mid_run()));
  all.push_back(adam_case({.weight_decay = 0.1, .split = true}, Shape{100'000'000}, bf16, bf16, mid_run()));
  all.push_back(adam_case({.weight_decay = 0.1}, Shape{100'000'000}, bf16, bf16, mid_run(), {.weight = bf16, .moments = bf16}));
  all.push_back(adam_case({.weight_decay = 0.1, .copy = true}, Shape{768, 3072}, bf16, bf16, mid_run()));
  all.push_back(adam_case({.weight_decay = 0.1}, Shape{768}, DType::f32, bf16, mid_run()));
  all.push_back(sgd_case({.momentum = 0.9, .copy = true}, Shape{100'000'000}, bf16, bf16, mid_run()));
  return all;
}

int run() {
  Arena arena(std::int64_t{12} << 30);
  constexpr std::int64_t kCopy = std::int64_t{2} << 30;
  std::byte* from = arena.take(kCopy);
  std::byte* to = arena.take(kCopy);
  check(cudaMemset(from, 1, kCopy), "cudaMemset");
  const double copied = 2.0 * static_cast<double>(kCopy);
  const double seconds = seconds_of([&](int) { check(cudaMemcpyAsync(to, from, kCopy, cudaMemcpyDeviceToDevice, nullptr), "copy"); });
  const double ceiling = copied / seconds;
  print("copy on the device", copied, seconds, ceiling);
  for (const Case& test : cases()) time_case(test, arena, ceiling);
  return 0;
}

}  // namespace
}  // namespace plimsoll::op_cases

int main() { return plimsoll::op_cases::run(); }
