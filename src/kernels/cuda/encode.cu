// To and from the forms of ops/forms, by their own functions: a warp finds the scale of a block and writes its codes, and a thread decodes
// four neighbours, which are never in two records.
#include <algorithm>
#include <array>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/forms/all.h"
#include "ops/op.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPiece = 4;

template <typename Form, typename T>
__global__ void __launch_bounds__(kThreads)
    encode_blocks(const T* x, std::int64_t columns, std::int64_t in_row, std::int64_t records, std::uint8_t* stored) {
  constexpr int kOwn = Form::kBlock / kWarp;
  static_assert(kOwn % Form::kPerByte == 0);
  const std::int64_t number = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (number >= records) return;
  const int first = static_cast<int>(threadIdx.x) % kWarp * kOwn;
  const std::int64_t column = number % in_row * Form::kBlock + first;
  const T* from = x + number / in_row * columns + column;
  float values[kOwn];
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    values[i] = column + i < columns ? to_f32(from[i]) : 0.0f;
    largest = max(largest, __float_as_uint(values[i]) & 0x7FFFFFFFu);
  }
  const std::uint32_t scale = Form::scale_code(__reduce_max_sync(0xFFFFFFFFu, largest));
  std::uint8_t* record = stored + number * Form::kRecord;
#pragma unroll
  for (int i = 0; i < kOwn; i += Form::kPerByte)
    record[(first + i) / Form::kPerByte] = Form::byte_of(values + i, first + i, __uint_as_float(scale << 16), ops::ToNearest{});
  if (first == 0) Form::put_scale(record, scale);
}

template <typename Form, typename T>
__global__ void __launch_bounds__(kThreads)
    decode_pieces(const std::uint8_t* stored, std::int64_t columns, std::int64_t in_row, std::int64_t pieces, T* y) {
  static_assert(Form::kBlock % kPiece == 0);
  constexpr int kPieces = Form::kBlock / kPiece;  // of a record
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (number >= pieces) return;
  const std::int64_t block = number / kPieces;
  const int first = static_cast<int>(number % kPieces) * kPiece;
  const std::uint8_t* record = stored + block * Form::kRecord;
  const float scale = Form::scale_of(record);
  const std::int64_t column = block % in_row * Form::kBlock + first;
  T* to = y + block / in_row * columns + column;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (column + i < columns) to[i] = from_f32<T>(Form::value_at(record, first + i, scale));
  }
}

template <typename Form>
void encode_as(const Call& call, cudaStream_t stream) {
  const Tensor& x = call.inputs[0];
  with_element(x.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = x.type.shape[-1];
    const std::int64_t in_row = (columns + Form::kBlock - 1) / Form::kBlock;
    const std::int64_t records = x.type.shape.rows() * in_row;
    encode_blocks<Form, T><<<blocks_for(records * kWarp, kThreads), kThreads, 0, stream>>>(x.as<const T>(), columns, in_row, records,
                                                                                           call.outputs[0].as<std::uint8_t>());
  });
  check_launch("encode");
}

template <typename Form>
void decode_as(const Call& call, cudaStream_t stream) {
  const Tensor& y = call.outputs[0];
  with_element(y.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = y.type.shape[-1];
    const std::int64_t in_row = (columns + Form::kBlock - 1) / Form::kBlock;
    const std::int64_t pieces = y.type.shape.rows() * in_row * (Form::kBlock / kPiece);
    decode_pieces<Form, T><<<blocks_for(pieces, kThreads), kThreads, 0, stream>>>(call.inputs[0].as<const std::uint8_t>(), columns, in_row,
                                                                                  pieces, y.as<T>());
  });
  check_launch("decode");
}

// The forms that there is device code of, by name: rows made elsewhere have none.
struct FormLaunch {
  std::string_view name;
  void (*encode)(const Call& call, cudaStream_t stream);
  void (*decode)(const Call& call, cudaStream_t stream);
};

template <typename... Codes>
constexpr std::array<FormLaunch, sizeof...(Codes)> launches_of(ops::FormList<Codes...>) {
  return {FormLaunch{Codes::kName, encode_as<ops::BlockForm<Codes>>, decode_as<ops::BlockForm<Codes>>}...};
}

constexpr auto kFormLaunches = launches_of(ops::AllForms{});

const ops::FormInfo& form_of(const ops::Op& op) {
  const auto* encode = std::get_if<ops::Encode>(&op);
  return encode != nullptr ? *encode->form : *std::get<ops::Decode>(op).form;
}

const FormLaunch* launch_of(const ops::FormInfo& form) {
  const auto found = std::find_if(kFormLaunches.begin(), kFormLaunches.end(), [&](const FormLaunch& row) { return row.name == form.name; });
  return found == kFormLaunches.end() ? nullptr : &*found;
}

std::optional<std::string> refuse_form(const ops::KernelQuery& query) {
  if (std::optional<std::string> refusal = refuse_other_floats(query)) return refusal;
  const ops::FormInfo& form = form_of(query.op);
  if (launch_of(form) != nullptr) return std::nullopt;
  return fmt::format("there is no device code for the form {}", form.name);
}

void encode(const Call& call, cudaStream_t stream) { launch_of(form_of(call.op))->encode(call, stream); }
void decode(const Call& call, cudaStream_t stream) { launch_of(form_of(call.op))->decode(call, stream); }

constexpr Kernel kKernels[] = {
    {.op = "encode", .name = "encode.warp", .refusal = refuse_form, .launch = encode},
    {.op = "decode", .name = "decode.pieces", .refusal = refuse_form, .launch = decode},
};

}  // namespace

std::span<const Kernel> encode_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda
