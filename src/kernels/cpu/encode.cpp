// To and from the forms of ops/forms, by their own functions for a block: compiled for each target, where the loops over a block become
// vectors.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

// Neighbours in a row; the last record may have fewer elements than others.
void encode_records(ops::Form which, const float* values, std::int64_t count, std::uint8_t* records) {
  ops::with_form(which, [&](auto form) HWY_ATTR {
    using Form = decltype(form);
    std::int64_t first = 0;
    for (; first + Form::kBlock <= count; first += Form::kBlock, records += Form::kRecord) Form::encode(values + first, records);
    if (first == count) return;
    alignas(64) float block[Form::kBlock] = {};
    std::copy_n(values + first, count - first, block);
    Form::encode(block, records);
  });
}

void decode_records(ops::Form which, const std::uint8_t* records, std::int64_t count, float* values) {
  ops::with_form(which, [&](auto form) HWY_ATTR {
    using Form = decltype(form);
    std::int64_t first = 0;
    for (; first + Form::kBlock <= count; first += Form::kBlock, records += Form::kRecord) Form::decode(records, values + first);
    if (first == count) return;
    alignas(64) float block[Form::kBlock];
    Form::decode(records, block);
    std::copy_n(block, count - first, values + first);
  });
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(encode_records);
HWY_EXPORT(decode_records);

namespace {

// Elements that pay for waking a thread.
constexpr std::int64_t kGrain = 8 * kBlock;

// Calls body(first element, count, first record) for stretches of whole records within a row, kBlock elements at a time.
template <typename Body>
void for_each_stretch(const Call& call, const ops::FormInfo& form, const Tensor& elements, const Body& body) {
  const std::int64_t columns = elements.type.shape[-1];
  const std::int64_t stored = form.bytes(columns);
  const std::int64_t rows = elements.type.shape.rows();
  parallel_ranges(call.threads, rows, std::max<std::int64_t>(1, kGrain / columns), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t first = 0; first < columns; first += kBlock)
        body(row * columns + first, std::min(kBlock, columns - first), row * stored + first / form.block * form.record);
    }
  });
}

void run_encode(const Call& call) {
  const ops::Form form = std::get<ops::Encode>(call.op).form;
  const Tensor& x = call.inputs[0];
  auto* records = call.outputs[0].as<std::uint8_t>();
  for_each_stretch(call, ops::info_of(form), x, [&](std::int64_t first, std::int64_t count, std::int64_t record) {
    alignas(64) float buffer[kBlock];
    HWY_DYNAMIC_DISPATCH(encode_records)(form, read_f32(x, first, count, buffer), count, records + record);
  });
}

void run_decode(const Call& call) {
  const ops::Form form = std::get<ops::Decode>(call.op).form;
  const Tensor& y = call.outputs[0];
  const auto* records = call.inputs[0].as<const std::uint8_t>();
  for_each_stretch(call, ops::info_of(form), y, [&](std::int64_t first, std::int64_t count, std::int64_t record) {
    alignas(64) float buffer[kBlock];
    float* values = target_f32(y, first, buffer);
    HWY_DYNAMIC_DISPATCH(decode_records)(form, records + record, count, values);
    finish_f32(y, first, count, values);
  });
}

constexpr std::array kKernels{
    Kernel{.op = "encode", .name = "encode.simd", .refusal = refuse_other_floats, .run = run_encode},
    Kernel{.op = "decode", .name = "decode.simd", .refusal = refuse_other_floats, .run = run_decode},
};

}  // namespace

std::span<const Kernel> encode_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif
