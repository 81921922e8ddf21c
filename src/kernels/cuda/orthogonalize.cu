// A matrix made orthogonal by products with itself (ops/prelude.h), in f32 by cuBLASLt. Rows of one matrix that alternate with those
// of others are gathered first, so that every product is one of plain matrices.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/lt_gemm.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSumBlocks = 128;

// ---- one matrix of the operator

// Where its rows lie: `in_unit` of every unit of `unit` rows, from row `before` on.
struct Rows {
  std::int64_t unit = 1;
  std::int64_t before = 0;
  std::int64_t in_unit = 1;
  std::int64_t columns = 1;

  __host__ __device__ std::int64_t element(std::int64_t index) const {
    const std::int64_t row = index / columns;
    return (row / in_unit * unit + before + row % in_unit) * columns + index % columns;
  }
};

struct Matrix {
  Rows rows;
  std::int64_t height = 0;
  double scale = 1.0;

  std::int64_t elements() const { return height * rows.columns; }
  std::int64_t low() const { return std::min(height, rows.columns); }
  std::int64_t high() const { return std::max(height, rows.columns); }
  bool tall() const { return height > rows.columns; }
};

std::vector<Matrix> matrices_of(const ops::Orthogonalize& op, const base::Shape& shape) {
  std::vector<Matrix> matrices;
  std::int64_t before = 0;
  for (const std::int64_t in_unit : op.rows_in_unit()) {
    const std::int64_t height = shape[0] / op.unit() * in_unit;
    matrices.push_back(
        {{.unit = op.unit(), .before = before, .in_unit = in_unit, .columns = shape[1]}, height, op.scale_of(height, shape[1])});
    before += in_unit;
  }
  return matrices;
}

// ---- products: X X' (or X' X), its square, and a polynomial in it times X

struct Problems {
  LtProblem square, fourth, next;
};

LtProblem plain(std::int64_t m, std::int64_t n, std::int64_t k) {
  LtProblem problem{.operands = base::DType::f32, .result = base::DType::f32};
  problem.m = m, problem.n = n, problem.k = k;
  problem.a_stride = k, problem.b_stride = n, problem.c_stride = n;
  return problem;
}

Problems problems_of(const Matrix& matrix) {
  const std::int64_t n = matrix.low(), columns = matrix.rows.columns;
  Problems problems{plain(n, n, matrix.high()), plain(n, n, n), plain(matrix.height, columns, n)};
  (matrix.tall() ? problems.square.a_transposed : problems.square.b_transposed) = true;
  problems.square.a_stride = problems.square.b_stride = columns;
  return problems;
}

struct Products {
  LtGemm square, fourth, next;
};

using PreparedMatrices = std::vector<Products>;

Prepared prepare_orthogonalize(const ops::KernelQuery& query) {
  auto prepared = std::make_shared<PreparedMatrices>();
  for (const Matrix& matrix : matrices_of(std::get<ops::Orthogonalize>(query.op), query.inputs[0].shape)) {
    const Problems problems = problems_of(matrix);
    // Ranks that have the same matrix must make the same of it.
    prepared->push_back(
        {LtGemm(problems.square, LtChoice::first), LtGemm(problems.fourth, LtChoice::first), LtGemm(problems.next, LtChoice::first)});
  }
  return prepared;
}

struct Scratch {
  float* x = nullptr;
  float* next = nullptr;
  float* square = nullptr;
  float* fourth = nullptr;
  double* sums = nullptr;
  std::byte* gemm = nullptr;
  std::int64_t bytes = 0;

  Scratch(const std::vector<Matrix>& matrices, std::byte* memory) {
    std::int64_t elements = 0, low = 0, gemm_bytes = 0;
    for (const Matrix& matrix : matrices) {
      elements = std::max(elements, matrix.elements());
      low = std::max(low, matrix.low());
      const Problems problems = problems_of(matrix);
      for (const LtProblem* problem : {&problems.square, &problems.fourth, &problems.next})
        gemm_bytes = std::max(gemm_bytes, problem->workspace());
    }
    Workspace pieces(memory);
    x = pieces.take<float>(elements);
    next = pieces.take<float>(elements);
    square = pieces.take<float>(low * low);
    fourth = pieces.take<float>(low * low);
    sums = pieces.take<double>(kSumBlocks);
    gemm = pieces.take<std::byte>(gemm_bytes);
    bytes = pieces.bytes();
  }
};

std::int64_t orthogonalize_workspace(const ops::KernelQuery& query) {
  return Scratch(matrices_of(std::get<ops::Orthogonalize>(query.op), query.inputs[0].shape), nullptr).bytes;
}

// ---- what is not a product

__device__ double block_total(double value) {
  __shared__ double partial[kThreads];
  partial[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  __syncthreads();
  return partial[0];
}

// Gathers a matrix, and sums its squares block by block, in an order that does not change.
__global__ void gather_rows(const float* from, Rows rows, std::int64_t elements, float* x, double* sums) {
  double sum = 0.0;
  for (std::int64_t index = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; index < elements;
       index += std::int64_t{kSumBlocks} * kThreads) {
    const float value = from[rows.element(index)];
    x[index] = value;
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  const double total = block_total(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void divide_by_norm(float* x, std::int64_t elements, const double* sums) {
  __shared__ float inverse;
  if (threadIdx.x == 0) {
    double squares = 0.0;
    for (int block = 0; block < kSumBlocks; ++block) squares += sums[block];
    const double norm = sqrt(squares);
    inverse = static_cast<float>(1.0 / (norm < ops::kLeastNorm ? ops::kLeastNorm : norm));
  }
  __syncthreads();
  const std::int64_t index = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (index < elements) x[index] *= inverse;
}

// a + b A + c A A, of which A and A A are given.
__global__ void make_polynomial(const float* square, float* fourth, std::int64_t size, float a, float b, float c) {
  const std::int64_t index = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (index >= size * size) return;
  fourth[index] = b * square[index] + c * fourth[index] + (index / size == index % size ? a : 0.0f);
}

__global__ void scatter_rows(const float* x, Rows rows, std::int64_t elements, float scale, float* to) {
  const std::int64_t index = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (index < elements) to[rows.element(index)] = scale * x[index];
}

std::uint32_t blocks_of(std::int64_t elements) { return static_cast<std::uint32_t>((elements + kThreads - 1) / kThreads); }

void make_orthogonal(const Matrix& matrix, const Products& products, const Scratch& scratch, std::int64_t steps, const float* from,
                     float* to, cudaStream_t stream) {
  const std::int64_t elements = matrix.elements(), n = matrix.low();
  float* x = scratch.x;
  float* next = scratch.next;
  gather_rows<<<kSumBlocks, kThreads, 0, stream>>>(from, matrix.rows, elements, x, scratch.sums);
  divide_by_norm<<<blocks_of(elements), kThreads, 0, stream>>>(x, elements, scratch.sums);
  for (std::int64_t step = 0; step < steps; ++step) {
    products.square.launch({.a = x, .b = x, .c = scratch.square, .workspace = scratch.gemm}, stream);
    products.fourth.launch({.a = scratch.square, .b = scratch.square, .c = scratch.fourth, .workspace = scratch.gemm}, stream);
    make_polynomial<<<blocks_of(n * n), kThreads, 0, stream>>>(scratch.square, scratch.fourth, n, static_cast<float>(ops::kNewtonSchulz[0]),
                                                               static_cast<float>(ops::kNewtonSchulz[1]),
                                                               static_cast<float>(ops::kNewtonSchulz[2]));
    const bool tall = matrix.tall();
    products.next.launch({.a = tall ? x : scratch.fourth, .b = tall ? scratch.fourth : x, .c = next, .workspace = scratch.gemm}, stream);
    std::swap(x, next);
  }
  scatter_rows<<<blocks_of(elements), kThreads, 0, stream>>>(x, matrix.rows, elements, static_cast<float>(matrix.scale), to);
  check_launch("orthogonalize");
}

void orthogonalize(const Call& call, cudaStream_t stream) {
  const auto& op = std::get<ops::Orthogonalize>(call.op);
  const std::vector<Matrix> matrices = matrices_of(op, call.inputs[0].type.shape);
  const Scratch scratch(matrices, call.workspace);
  const auto& prepared = *static_cast<const PreparedMatrices*>(call.prepared);
  for (std::size_t index = 0; index < matrices.size(); ++index)
    make_orthogonal(matrices[index], prepared[index], scratch, op.steps, call.inputs[0].as<const float>(), call.outputs[0].as<float>(),
                    stream);
}

constexpr Kernel kKernels[] = {
    {.op = "orthogonalize",
     .name = "orthogonalize.cublaslt",
     .workspace = orthogonalize_workspace,
     .prepare = prepare_orthogonalize,
     .launch = orthogonalize},
};

}  // namespace

std::span<const Kernel> orthogonalize_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda
