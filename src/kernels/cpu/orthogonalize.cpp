// A matrix made orthogonal by products with itself (ops/prelude.h), all in f32. Rows of one matrix that alternate with those of
// others are gathered first, so that every product is one of plain matrices.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/exact_sum.h"
#include "kernels/cpu/packed_gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu {

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements

// The shape of the largest matrix among the operator's, and what its products take.
struct Sizes {
  std::int64_t elements = 0;
  std::int64_t shorter = 0;
  std::int64_t gemm_bytes = 0;
};

Sizes sizes_of(const ops::Orthogonalize& op, const base::Shape& shape, int threads) {
  Sizes sizes;
  for (const std::int64_t in_unit : op.rows_in_unit()) {
    const std::int64_t rows = shape[0] / op.unit() * in_unit;
    const std::int64_t low = std::min(rows, shape[1]), high = std::max(rows, shape[1]);
    sizes.elements = std::max(sizes.elements, rows * shape[1]);
    sizes.shorter = std::max(sizes.shorter, low);
    for (const GemmSize& size : {GemmSize{low, low, high}, GemmSize{low, low, low}, GemmSize{low, high, low}, GemmSize{high, low, low}})
      sizes.gemm_bytes = std::max(sizes.gemm_bytes, packed_gemm_workspace(size, threads));
  }
  return sizes;
}

struct Scratch {
  float* x = nullptr;
  float* change = nullptr;
  float* square = nullptr;  // X X', of the shorter side
  float* fourth = nullptr;  // its square, and then the polynomial in it
  std::byte* gemm = nullptr;
  std::int64_t bytes = 0;

  Scratch(const Sizes& sizes, std::byte* memory) {
    Workspace workspace(memory);
    x = workspace.take<float>(sizes.elements);
    change = workspace.take<float>(sizes.elements);
    square = workspace.take<float>(sizes.shorter * sizes.shorter);
    fourth = workspace.take<float>(sizes.shorter * sizes.shorter);
    gemm = workspace.take<std::byte>(sizes.gemm_bytes);
    bytes = workspace.bytes();
  }
};

std::int64_t orthogonalize_workspace(const ops::KernelQuery& query) {
  return Scratch(sizes_of(std::get<ops::Orthogonalize>(query.op), query.inputs[0].shape, query.threads), nullptr).bytes;
}

class Iteration {
 public:
  Iteration(const Scratch& scratch, std::int64_t rows, std::int64_t columns, int threads)
      : scratch_(scratch), rows_(rows), columns_(columns), tall_(rows > columns), threads_(threads) {}

  void run(std::int64_t steps) {
    divide_by_norm();
    for (std::int64_t step = 0; step < steps; ++step) advance();
  }

 private:
  std::int64_t low() const { return std::min(rows_, columns_); }

  template <typename Body>
  void for_elements(std::int64_t count, const Body& body) const {
    parallel_ranges(threads_, count, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t index = begin; index < end; ++index) body(index);
    });
  }

  // The norm is a sum of blocks, the same for any number of threads.
  void divide_by_norm() const {
    base::ExactSum squares;
    const std::int64_t count = rows_ * columns_;
    for (std::int64_t first = 0; first < count; first += ops::kSumBlock) {
      float sum = 0.0f;
      for (std::int64_t index = first; index < std::min(count, first + ops::kSumBlock); ++index)
        sum += scratch_.x[index] * scratch_.x[index];
      squares.add(sum);
    }
    const auto inverse = static_cast<float>(1.0 / std::max(std::sqrt(squares.value()), ops::kLeastNorm));
    for_elements(count, [&](std::int64_t index) { scratch_.x[index] *= inverse; });
  }

  MatrixView view(const float* data, std::int64_t stride, bool transposed) const {
    return {.data = data, .stride = stride, .transposed = transposed};
  }
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const MatrixView& a, const MatrixView& b, float* c) const {
    packed_gemm({.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_stride = n}, scratch_.gemm, threads_);
  }

  // X = a X + (b A + c A A) X with A = X X', or the same of X' where that has fewer rows.
  void advance() {
    const std::int64_t n = low(), depth = std::max(rows_, columns_);
    multiply(n, n, depth, view(scratch_.x, columns_, tall_), view(scratch_.x, columns_, !tall_), scratch_.square);
    multiply(n, n, n, view(scratch_.square, n, false), view(scratch_.square, n, false), scratch_.fourth);
    constexpr auto kB = static_cast<float>(ops::kNewtonSchulz[1]), kC = static_cast<float>(ops::kNewtonSchulz[2]);
    for_elements(n * n, [&](std::int64_t index) { scratch_.fourth[index] = kB * scratch_.square[index] + kC * scratch_.fourth[index]; });
    const MatrixView polynomial = view(scratch_.fourth, n, false), x = view(scratch_.x, columns_, false);
    multiply(rows_, columns_, n, tall_ ? x : polynomial, tall_ ? polynomial : x, scratch_.change);
    constexpr auto kA = static_cast<float>(ops::kNewtonSchulz[0]);
    for_elements(rows_ * columns_, [&](std::int64_t index) { scratch_.x[index] = kA * scratch_.x[index] + scratch_.change[index]; });
  }

  const Scratch& scratch_;
  std::int64_t rows_;
  std::int64_t columns_;
  bool tall_;
  int threads_;
};

void run_orthogonalize(const Call& call) {
  const auto& op = std::get<ops::Orthogonalize>(call.op);
  const base::Shape& shape = call.inputs[0].type.shape;
  const std::int64_t columns = shape[1];
  const Scratch scratch(sizes_of(op, shape, call.threads), call.workspace);
  const auto* from = call.inputs[0].as<const float>();
  auto* to = call.outputs[0].as<float>();
  std::int64_t before = 0;  // rows of a unit that earlier matrices have
  for (const std::int64_t in_unit : op.rows_in_unit()) {
    const std::int64_t units = shape[0] / op.unit();
    const auto first_row = [&](std::int64_t unit) { return unit * op.unit() + before; };
    const std::int64_t together = in_unit * columns;
    for (std::int64_t unit = 0; unit < units; ++unit)
      std::memcpy(scratch.x + unit * together, from + first_row(unit) * columns, static_cast<std::size_t>(together) * sizeof(float));
    Iteration(scratch, units * in_unit, columns, call.threads).run(op.steps);
    const auto scale = static_cast<float>(op.scale_of(units * in_unit, columns));
    for (std::int64_t unit = 0; unit < units; ++unit) {
      for (std::int64_t index = 0; index < together; ++index)
        to[first_row(unit) * columns + index] = scale * scratch.x[unit * together + index];
    }
    before += in_unit;
  }
}

constexpr std::array kKernels{
    Kernel{.op = "orthogonalize", .name = "orthogonalize.products", .workspace = orthogonalize_workspace, .run = run_orthogonalize},
};

}  // namespace

std::span<const Kernel> orthogonalize_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
