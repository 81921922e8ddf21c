// What head_loss does between its matrix products, on a chunk of rows of logits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cuda {

struct LogitsChunk {
  void* logits = nullptr;  // (rows, stride)
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;
  std::int64_t stride = 0;
  const void* bias = nullptr;  // (vocabulary), or null
  bool f32_bias = false;       // else in the element type
  const std::int32_t* targets = nullptr;
  float* losses = nullptr;
  base::DType dtype = base::DType::f32;  // of the logits: f32, or bf16 where gradients are
};

// The losses of the rows; with `scalars` also the gradients of the logits, in `dtype`, over the logits: 16-bit ones of f32
// logits lie in the front half of their rows, so their stride is twice the logits'. Columns from the vocabulary to the stride get zeros.
void launch_softmax(const LogitsChunk& chunk, const ops::StepScalars* scalars, base::DType dtype, cudaStream_t stream);

// sums (columns) [+]= the columns' sums of gradients (rows, columns) at `stride`, one thread a column.
void launch_column_sums(const void* gradients, base::DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool add,
                        float* sums, cudaStream_t stream);

// out = sums + [present], rounded to `dtype`.
void launch_finish_sums(const float* sums, const void* present, std::int64_t count, base::DType dtype, void* out, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda
