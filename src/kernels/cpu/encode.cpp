// To and from the forms of ops/forms, by the code that a form's row brings for the processor at hand.
#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu {

namespace {

static_assert(kBlock % ops::kMostBlock == 0);

// Elements that pay for waking a thread.
constexpr std::int64_t kGrain = 8 * kBlock;

// Calls body(first element, count, first record's byte) for stretches of whole records within a row, kBlock elements at a time.
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
  const ops::FormInfo& form = *std::get<ops::Encode>(call.op).form;
  const Tensor& x = call.inputs[0];
  auto* records = call.outputs[0].as<std::uint8_t>();
  for_each_stretch(call, form, x, [&](std::int64_t first, std::int64_t count, std::int64_t record) {
    alignas(64) float buffer[kBlock];
    form.encode_row({read_f32(x, first, count, buffer), static_cast<std::size_t>(count)}, records + record);
  });
}

void run_decode(const Call& call) {
  const ops::FormInfo& form = *std::get<ops::Decode>(call.op).form;
  const Tensor& y = call.outputs[0];
  const auto* records = call.inputs[0].as<const std::uint8_t>();
  for_each_stretch(call, form, y, [&](std::int64_t first, std::int64_t count, std::int64_t record) {
    alignas(64) float buffer[kBlock];
    float* values = target_f32(y, first, buffer);
    form.decode_row(records + record, {values, static_cast<std::size_t>(count)});
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
