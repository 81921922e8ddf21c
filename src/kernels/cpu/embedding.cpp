// Sums of table rows, and the scatter that is their gradient.
//
// The gradient adds the rows of dy that share an id in token order. Threads divide the columns, not the ids: the work
// is even however often an id occurs, and each element is one thread's whatever the thread count. An id's tokens are
// chained through the workspace, so its gradient row is read and rounded once.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

void add_row(const float* HWY_RESTRICT row, float* HWY_RESTRICT sum, std::int64_t count) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) store(d, hn::Add(load(d, sum + index), load(d, row + index)), sum + index);
  for (; index < count; ++index) sum[index] += row[index];
}

// Zeros past the caches: what is cleared here is read again much later, if at all.
void clear_memory(std::byte* memory, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kStep = hn::MaxLanes(d);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory) % kStep;
  std::size_t index = std::min(bytes, misaligned == 0 ? 0 : kStep - misaligned);
  std::memset(memory, 0, index);
  for (; index + kStep <= bytes; index += kStep) hn::Stream(hn::Zero(d), d, reinterpret_cast<std::uint8_t*>(memory + index));
  std::memset(memory + index, 0, bytes - index);
  hwy::FlushStream();
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(add_row);
HWY_EXPORT(clear_memory);

namespace {

std::int32_t checked_id(std::string_view op, std::int32_t id, std::int64_t rows) {
  PLIMSOLL_CHECK((id >= 0 && id < rows) || id == ops::kElsewhere, "[{}] id {} of a table of {} rows", op, id, rows);
  return id;
}

// ---- embed

// Elements [first, first + count) of a row of the result.
void embed_piece(const Call& call, std::int64_t token, std::int64_t first, std::int64_t count) {
  const Tensor& y = call.outputs[0];
  const std::int64_t width = y.type.shape[-1];
  const auto id_of = [&](std::size_t table) {
    return checked_id("embed", call.inputs[2 * table].as<const std::int32_t>()[token], call.inputs[2 * table + 1].type.shape[0]);
  };
  const std::size_t tables = call.inputs.size() / 2;
  const std::int64_t place = token * width + first;
  if (tables == 1 && call.inputs[1].type.dtype == y.type.dtype && id_of(0) != ops::kElsewhere) {
    std::memcpy(element_address(y, place), element_address(call.inputs[1], id_of(0) * width + first),
                static_cast<std::size_t>(count * base::size_of(y.type.dtype)));
    return;
  }
  alignas(64) float sum_buffer[kBlock], row_buffer[kBlock];
  float* sum = target_f32(y, place, sum_buffer);
  if (id_of(0) == ops::kElsewhere) {
    std::fill_n(sum, count, 0.0f);
  } else {
    widen(call.inputs[1].type.dtype, element_address(call.inputs[1], id_of(0) * width + first), sum, count);
  }
  for (std::size_t table = 1; table < tables; ++table) {
    if (id_of(table) == ops::kElsewhere) continue;
    HWY_DYNAMIC_DISPATCH(add_row)(read_f32(call.inputs[2 * table + 1], id_of(table) * width + first, count, row_buffer), sum, count);
  }
  finish_f32(y, place, count, sum);
}

void run_embed(const Call& call) {
  const std::int64_t width = call.outputs[0].type.shape[-1];
  const std::int64_t grain = std::max<std::int64_t>(1, 8192 / width);
  parallel_ranges(call.threads, call.inputs[0].type.shape.elements(), grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      for (std::int64_t first = 0; first < width; first += kBlock) embed_piece(call, token, first, std::min(kBlock, width - first));
    }
  });
}

// ---- embed_grad

constexpr std::int32_t kNoToken = -1;

// The first token of each id, and for each token the next one of the same id.
struct TokenChains {
  TokenChains(Workspace& workspace, std::int64_t ids, std::int64_t tokens)
      : first(workspace.take<std::int32_t>(ids)), next(workspace.take<std::int32_t>(tokens)) {}
  std::int32_t* first;
  std::int32_t* next;
};

void chain_tokens(const TokenChains& chains, const std::int32_t* ids, std::int64_t tokens, std::int64_t rows) {
  std::fill_n(chains.first, rows, kNoToken);
  for (std::int64_t token = tokens; token-- > 0;) {
    const std::int32_t id = checked_id("embed_grad", ids[token], rows);
    if (id == ops::kElsewhere) continue;
    chains.next[token] = chains.first[id];
    chains.first[id] = static_cast<std::int32_t>(token);
  }
}

std::int64_t embed_grad_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  TokenChains(workspace, query.outputs[0].shape[0], query.inputs[0].shape.elements());
  return workspace.bytes();
}

void clear(const Tensor& tensor, int threads) {
  constexpr std::int64_t kGrain = 1 << 16;
  constexpr std::int64_t kCached = 1 << 22;  // a small table had better stay in the caches
  const std::int64_t bytes = tensor.type.bytes();
  parallel_ranges(threads, bytes, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::byte* memory = tensor.as<std::byte>() + begin;
    const auto count = static_cast<std::size_t>(end - begin);
    if (bytes <= kCached) {
      std::memset(memory, 0, count);
    } else {
      HWY_DYNAMIC_DISPATCH(clear_memory)(memory, count);
    }
  });
}

// Adds columns [first, first + count) of every token that has the id of `token`, the first of its chain.
void add_chain(const Call& call, const TokenChains& chains, std::int32_t token, std::int64_t first, std::int64_t count) {
  const Tensor& dy = call.inputs[1];
  const Tensor& dtable = call.outputs[0];
  const std::int64_t width = dy.type.shape[-1];
  const std::int64_t place = call.inputs[0].as<const std::int32_t>()[token] * width + first;
  alignas(64) float sum_buffer[kBlock], row_buffer[kBlock];
  float* sum = target_f32(dtable, place, sum_buffer);
  widen(dtable.type.dtype, element_address(dtable, place), sum, count);
  for (; token != kNoToken; token = chains.next[token]) {
    HWY_DYNAMIC_DISPATCH(add_row)(read_f32(dy, token * width + first, count, row_buffer), sum, count);
  }
  finish_f32(dtable, place, count, sum);
}

void run_embed_grad(const Call& call) {
  const auto& op = std::get<ops::EmbedGrad>(call.op);
  const auto* ids = call.inputs[0].as<const std::int32_t>();
  const std::int64_t tokens = call.inputs[0].type.shape.elements();
  const std::int64_t width = call.inputs[1].type.shape[-1];
  const Tensor& dtable = call.outputs[0];
  Workspace workspace(call.workspace);
  const TokenChains chains(workspace, op.rows, tokens);
  chain_tokens(chains, ids, tokens, op.rows);
  if (!op.accumulate) {
    clear(dtable, call.threads);
  } else if (call.inputs[2].data != dtable.data) {
    std::memcpy(dtable.data, call.inputs[2].data, static_cast<std::size_t>(dtable.type.bytes()));
  }
  constexpr std::int64_t kColumnGrain = 64;
  parallel_ranges(call.threads, width, kColumnGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int32_t token = 0; token < tokens; ++token) {
      if (ids[token] == ops::kElsewhere || chains.first[ids[token]] != token) continue;
      for (std::int64_t first = begin; first < end; first += kBlock) add_chain(call, chains, token, first, std::min(kBlock, end - first));
    }
  });
}

void run_shift_ids(const Call& call) {
  const auto& op = std::get<ops::ShiftIds>(call.op);
  const auto* ids = call.inputs[0].as<const std::int32_t>();
  auto* shifted = call.outputs[0].as<std::int32_t>();
  for (std::int64_t index = 0; index < call.inputs[0].type.shape.elements(); ++index) {
    const std::int64_t id = ids[index];
    const bool here = id >= op.first && id < op.first + op.rows && id != op.hidden;
    shifted[index] = id < 0 ? ids[index] : here ? static_cast<std::int32_t>(id - op.first) : ops::kElsewhere;
  }
}

constexpr std::array kKernels{
    Kernel{.op = "shift_ids", .name = "shift_ids.host", .run = run_shift_ids},
    Kernel{.op = "embed", .name = "embed.simd", .refusal = refuse_other_floats, .run = run_embed},
    Kernel{.op = "embed_grad",
           .name = "embed_grad.simd",
           .refusal = refuse_other_floats,
           .workspace = embed_grad_workspace,
           .run = run_embed_grad},
};

}  // namespace

std::span<const Kernel> embedding_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif
