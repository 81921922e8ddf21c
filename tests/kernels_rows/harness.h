// What the tests of row and element kernels share: tensors of any float type with exact memory (so that a sanitizer
// sees every step past an end), one call of a kernel, and comparison with doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/row_code.h"
#include "base/shape.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "ops/step_scalars.h"

#include <hwy/highway.h>

namespace plimsoll::kernels::cpu::testing {

using base::DType;
using base::Shape;
using base::TensorType;

inline const std::vector<DType> kFloats{DType::f32, DType::bf16, DType::f16};

// Of what rows of tables bring, the code that this processor runs.
inline std::vector<base::RowCode> codes_here() {
  std::vector<base::RowCode> codes{base::RowCode::plain};
  if (base::processor().best >= base::Isa::avx2) codes.push_back(base::RowCode::avx2);
  if (base::processor().best >= base::Isa::avx512) codes.push_back(base::RowCode::avx512);
  return codes;
}

class Data {
 public:
  explicit Data(TensorType tensor_type) : type(tensor_type), bytes_(static_cast<std::size_t>(tensor_type.bytes())) {}

  TensorType type;
  Tensor tensor() { return {bytes_.data(), type}; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  double operator[](std::int64_t index) const {
    double value = 0.0;
    with_element(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      T element;
      std::memcpy(&element, bytes_.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      value = to_f32(element);
    });
    return value;
  }
  void set(std::int64_t index, double value) {
    with_element(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T element = from_f32<T>(static_cast<float>(value));
      std::memcpy(bytes_.data() + index * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
    });
  }
  const std::byte* bytes() const { return bytes_.data(); }
  std::int64_t size() const { return type.shape.elements(); }
  bool operator==(const Data& other) const { return type == other.type && bytes_ == other.bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline Data random_data(DType dtype, const Shape& shape, unsigned seed, double spread = 1.0, double centre = 0.0) {
  Data data({dtype, shape});
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(centre, spread);
  for (std::int64_t index = 0; index < data.size(); ++index) data.set(index, normal(generator));
  return data;
}

inline Data random_ids(const Shape& shape, std::int32_t limit, unsigned seed) {
  Data data({DType::i32, shape});
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> any(0, limit - 1);
  for (std::int64_t index = 0; index < data.size(); ++index) data.as<std::int32_t>()[index] = any(generator);
  return data;
}

inline ops::StepScalars scalars_at(std::uint64_t seed, std::uint32_t step) {
  ops::StepScalars scalars;
  scalars.seed = seed;
  scalars.step = step;
  return scalars;
}

inline Data scalars_data(const ops::StepScalars& scalars) {
  Data data(ops::step_scalars_type());
  std::memcpy(data.as<std::byte>(), &scalars, sizeof scalars);
  return data;
}

// Calls the family's first kernel for the operator with the outputs given, which may be inputs too.
inline void call_kernel(std::span<const Kernel> family, const ops::Op& op, const std::vector<Data*>& inputs,
                        const std::vector<Data*>& outputs, int threads) {
  const std::string_view name = ops::name_of(op);
  const auto kernel = std::find_if(family.begin(), family.end(), [&](const Kernel& candidate) { return candidate.op == name; });
  ASSERT_NE(kernel, family.end()) << name;
  std::vector<Tensor> in, out;
  std::vector<TensorType> in_types, out_types;
  for (Data* data : inputs) in.push_back(data->tensor()), in_types.push_back(data->type);
  for (Data* data : outputs) out.push_back(data->tensor()), out_types.push_back(data->type);
  const ops::KernelQuery query{op, in_types, out_types, threads};
  if (kernel->refusal != nullptr) {
    ASSERT_EQ(kernel->refusal(query), std::nullopt) << name;
  }
  const auto bytes = static_cast<std::size_t>(kernel->workspace == nullptr ? 0 : kernel->workspace(query));
  const auto free_workspace = [](std::byte* memory) { ::operator delete(memory, std::align_val_t(64)); };
  std::unique_ptr<std::byte, decltype(free_workspace)> workspace(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64))),
                                                                 free_workspace);
  std::memset(workspace.get(), 0xFF, bytes);  // NaN: scratch must not be trusted
  const Prepared prepared = kernel->prepare == nullptr ? nullptr : kernel->prepare(query);
  kernel->run({.op = op, .inputs = in, .outputs = out, .workspace = workspace.get(), .threads = threads, .prepared = prepared.get()});
}

inline double epsilon(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 2e-6; }

inline std::vector<double> doubles(const Data& data) {
  std::vector<float> widened(static_cast<std::size_t>(data.size()));
  widen(data.type.dtype, data.bytes(), widened.data(), data.size());
  return {widened.begin(), widened.end()};
}

// Within a rounding of the element type, and `slack` of the largest expected value for what cancels.
inline void expect_close(const Data& got, const std::vector<double>& expected, double slack = 2e-6) {
  ASSERT_EQ(got.size(), static_cast<std::int64_t>(expected.size()));
  double largest = 1e-3;
  for (double value : expected) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  const double rounding = epsilon(got.type.dtype) * 1.01;
  const double floor = slack * largest + (got.type.dtype == DType::f16 ? 1e-7 : 0.0);
  const std::vector<double> values = doubles(got);
  for (std::size_t index = 0; index < values.size(); ++index) {
    const double want = expected[index];
    if (values[index] == want || (std::isnan(want) && std::isnan(values[index]))) continue;
    ASSERT_LE(std::abs(values[index] - want), rounding * std::abs(want) + floor)
        << "element " << index << " of " << base::to_string(got.type) << ": " << values[index] << ", expected " << want;
  }
}

// Calls body for every instruction set that this machine has and kernels are compiled for.
template <typename Body>
void for_each_target(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

inline std::vector<Data> run_once(std::span<const Kernel> family, const ops::Op& op, const std::vector<Data*>& inputs,
                                  const std::vector<TensorType>& output_types, int threads) {
  std::vector<Data> outputs;
  std::vector<Data*> pointers;
  for (const TensorType& type : output_types) {
    outputs.emplace_back(type);
    std::memset(outputs.back().as<std::byte>(), 0xFF, static_cast<std::size_t>(type.bytes()));
  }
  for (Data& output : outputs) pointers.push_back(&output);
  call_kernel(family, op, inputs, pointers, threads);
  return outputs;
}

// Runs on 1, 2 and 3 threads and expects the same bits, which it returns; then on every instruction set and expects
// the same up to rounding.
inline std::vector<Data> run_kernel(std::span<const Kernel> family, const ops::Op& op, const std::vector<Data*>& inputs,
                                    const std::vector<TensorType>& output_types) {
  std::vector<Data> first = run_once(family, op, inputs, output_types, 1);
  for (int threads : {2, 3}) {
    const std::vector<Data> outputs = run_once(family, op, inputs, output_types, threads);
    for (std::size_t index = 0; index < outputs.size(); ++index) EXPECT_TRUE(outputs[index] == first[index]) << "threads " << threads;
  }
  for_each_target([&] {
    const std::vector<Data> outputs = run_once(family, op, inputs, output_types, 2);
    for (std::size_t index = 0; index < outputs.size(); ++index) {
      expect_close(outputs[index], doubles(first[index]), 1e-3 + 2.0 * epsilon(outputs[index].type.dtype));
    }
  });
  return first;
}

}  // namespace plimsoll::kernels::cpu::testing
