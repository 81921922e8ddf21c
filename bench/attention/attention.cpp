// Attention forward and backward against the machine's f32 GEMM, the most that its arithmetic allows:
//   bench_attention [threads] [f32|bf16|f16] [repeats]
// Floating-point operations are those of ops::Definition::work (causal pairs counted once); best of the repeats, GEMM
// interleaved.
#include <dnnl.h>
#include <omp.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/table.h"
#include "ops/definition.h"
#include "ops/step_scalars.h"

namespace {

using namespace plimsoll;
using base::DType;
using base::Shape;
using base::TensorType;
using kernels::cpu::Tensor;

struct Case {
  const char* name;
  std::int64_t batch, length;
  ops::Heads heads;
  std::int64_t window = 0;
  double rate = 0.0;
  bool causal = true;
};

const Case kCases[] = {
    {"gpt2 4 x 256", 4, 256, {12, 12, 64}},
    {"gpt2 4 x 256, dropout 0.1", 4, 256, {12, 12, 64}, 0, 0.1},
    {"gpt2 1 x 1024", 1, 1024, {12, 12, 64}},
    {"gpt2 1 x 4096", 1, 4096, {12, 12, 64}},
    {"bert 4 x 512", 4, 512, {12, 12, 64}, 0, 0.0, false},
    {"llama 1 x 2048, 32/8 heads of 128", 1, 2048, {32, 8, 128}},
    {"one head of 64, 4096", 1, 4096, {1, 1, 64}},
    {"window 256 of 4096", 1, 4096, {12, 12, 64}, 256},
    {"heads of 80, 1024", 1, 1024, {8, 8, 80}},
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A tensor with its memory, filled with small numbers.
struct Owned {
  std::vector<std::uint64_t> memory;
  Tensor tensor;

  explicit Owned(TensorType type) : memory(static_cast<std::size_t>(type.bytes() + 127) / 8) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    tensor = {reinterpret_cast<void*>((address + 63) / 64 * 64), type};
    if (!base::is_float(type.dtype)) return;
    kernels::cpu::with_element(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
        const float value = base::uniform_from_bits(base::philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {1, 2})[0]) * 2.0f - 1.0f;
        tensor.as<T>()[i] = kernels::cpu::from_f32<T>(value);
      }
    });
  }
};

struct Operator {
  ops::Op op;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  int threads;

  double flops() const {
    const auto input_types = types(inputs);
    const auto output_types = types(outputs);
    return ops::definition_of(op).work(op, input_types, output_types).flops;
  }
  std::function<void()> ready(const kernels::cpu::Kernel& kernel, std::vector<std::byte>& workspace) const {
    const auto input_types = types(inputs);
    const auto output_types = types(outputs);
    workspace.resize(static_cast<std::size_t>(kernel.workspace({op, input_types, output_types, threads}) + 64));
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
    auto* aligned = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
    return [=, this] { kernel.run({op, inputs, outputs, aligned, threads}); };
  }

 private:
  static std::vector<TensorType> types(const std::vector<Tensor>& tensors) {
    std::vector<TensorType> result;
    for (const Tensor& tensor : tensors) result.push_back(tensor.type);
    return result;
  }
};

double gemm_seconds(int threads) {
  constexpr dnnl_dim_t kSize = 1024;
  static std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 0.25f), c(kSize * kSize);
  omp_set_num_threads(threads);
  return seconds_of([] { dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0f, a.data(), kSize, b.data(), kSize, 0.0f, c.data(), kSize); }) /
         (2.0 * kSize * kSize * kSize);
}

void run_case(const Case& work, DType dtype, int threads, int repeats) {
  const std::int64_t width = work.heads.query * work.heads.dim;
  const ops::Attention attention{.heads = work.heads, .causal = work.causal, .window = work.window, .rate = work.rate};
  Owned packed({dtype, Shape{work.batch, work.length, work.heads.packed_width()}});
  Owned out({dtype, Shape{work.batch, work.length, width}});
  Owned dout(out.tensor.type);
  Owned lse({DType::f32, Shape{work.batch, work.heads.query, work.length}});
  Owned dpacked(packed.tensor.type);
  Owned samples({DType::i32, Shape{work.batch}});
  Owned scalars(ops::step_scalars_type());
  Operator forward{attention, {packed.tensor}, {out.tensor, lse.tensor}, threads};
  Operator backward{ops::AttentionGrad{attention}, {dout.tensor, packed.tensor, out.tensor, lse.tensor}, {dpacked.tensor}, threads};
  if (work.rate > 0.0) {
    for (Operator* each : {&forward, &backward}) each->inputs.insert(each->inputs.end(), {samples.tensor, scalars.tensor});
  }
  std::vector<std::byte> forward_memory, backward_memory;
  const auto run_forward = forward.ready(kernels::cpu::attention_kernels()[0], forward_memory);
  const auto run_backward = backward.ready(kernels::cpu::attention_kernels()[1], backward_memory);
  double gemm = std::numeric_limits<double>::max(), ahead = gemm, back = gemm;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    gemm = std::min(gemm, gemm_seconds(threads));
    ahead = std::min(ahead, seconds_of(run_forward));
    back = std::min(back, seconds_of(run_backward));
  }
  const double both = (forward.flops() + backward.flops()) / (ahead + back);
  fmt::print(
      "{:<36} forward {:8.2f} ms {:6.1f} GFLOP/s | backward {:8.2f} ms {:6.1f} GFLOP/s | both {:6.1f} = {:3.0f}% of GEMM {:.1f} | scratch "
      "{} + {} KiB\n",
      work.name, ahead * 1e3, forward.flops() / ahead * 1e-9, back * 1e3, backward.flops() / back * 1e-9, both * 1e-9, 100.0 * both * gemm,
      1e-9 / gemm, forward_memory.size() >> 10, backward_memory.size() >> 10);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto dtype = base::dtype_from_name(argc > 2 ? argv[2] : "f32");
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 7;
  if (threads < 1 || !dtype || !kernels::cpu::is_element(*dtype) || repeats < 1) {
    fmt::print(stderr, "bench_attention [threads] [f32|bf16|f16] [repeats]\n");
    return 2;
  }
  for (const Case& work : kCases) run_case(work, *dtype, threads, repeats);
  return 0;
}
