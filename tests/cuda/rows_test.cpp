// What the cases of tests/ops are too small for: row kernels at the widths of real models, sums over many rows and tokens, several
// tensors in one launch; and the promises of same bits as the processor's: dropout's mask, sums of losses and squares, updates.
#include <algorithm>

#include <gtest/gtest.h>

#include "cuda/device_case.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/table.h"
#include "ops/build_cases.h"
#include "ops/compare.h"
#include "support/updates.h"

namespace plimsoll::op_cases {
namespace {

namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;
namespace reference = kernels::cpu::reference;
using ops::NormKind;

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

const DeviceMemory& device_memory() {
  static const DeviceMemory memory(std::int64_t{1} << 30);
  return memory;
}

std::vector<Bytes> encoded(const std::vector<reference::RefValue>& values, const Case& test) {
  const std::vector<TensorType> types = test.input_types();
  std::vector<Bytes> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back(encode(values[i], types[i]));
  return inputs;
}

const cuda::Kernel& chosen(const Case& test) {
  const std::vector<TensorType> inputs = test.input_types();
  const std::vector<TensorType> outputs = test.output_types();
  return cuda::kernel_named(cuda::choose({test.op, inputs, outputs, 1, true}).name);
}

// The kernel against the reference, and against itself.
void check_values(const Case& test, const std::vector<reference::RefValue>& values) {
  SCOPED_TRACE(test.name());
  const std::vector<Bytes> inputs = encoded(values, test);
  const std::vector<Bytes> found = run_on_device(chosen(test), test, inputs, device_memory(), {});
  ASSERT_FALSE(found.empty());
  expect_near(found, reference::evaluate(test.op, values), test);
  EXPECT_EQ(run_on_device(chosen(test), test, inputs, device_memory(), {}), found) << "a second run gives other bits";
}

void check_case(const Case& test) { check_values(test, draw_inputs(test)); }

// The plain form and, where there is one, the accumulating one.
void check_forms(const Case& test) {
  check_case(test);
  const ops::Definition& definition = ops::definition_of(test.op);
  if (definition.accumulating == nullptr) return;
  if (const std::optional<ops::Op> form = definition.accumulating(test.op)) check_case(accumulating_case(test, *form));
}

TEST(DeviceRows, NormAtTheWidthsOfModels) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {768, 1024, 1280, 1600, 2048, 4096, 5120, 8192, 12288, 16384, 16392}) {
      const Shape shape{2, 3, width};
      check_case(norm_case({.kind = NormKind::layer, .bias = true}, shape, dtype));
      check_case(norm_case({.kind = NormKind::rms, .residual = true, .rate = 0.1, .site = 5}, shape, dtype));
      if (HasFailure()) return;
    }
  }
}

TEST(DeviceRows, NormGradientAtTheWidthsOfModels) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {256, 768, 1024, 1600, 2048, 3072, 4096, 8192, 12288, 16384, 16392}) {
      check_case(norm_grad_case({.kind = NormKind::layer, .bias = true, .has_dsum = true}, Shape{3, 7, width}, dtype));
      if (HasFailure()) return;
    }
    // More rows than blocks take at once, so that sums go over several turns.
    check_forms(norm_grad_case({.kind = NormKind::layer, .bias = true, .has_dsum = true, .dtype = dtype}, Shape{5, 1201, 64}, dtype));
    check_forms(norm_grad_case({.kind = NormKind::rms}, Shape{2, 701, 1600}, dtype));
    check_forms(norm_grad_case({.kind = NormKind::layer, .bias = true}, Shape{2, 401, 33}, dtype));
  }
}

TEST(DeviceRows, QkNormOfPowersOfTwo) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t dim : {32, 64, 96, 128, 256}) {
      const ops::Heads heads{6, 2, dim};
      check_case(qk_norm_case({.heads = heads}, 2, 70, dtype));
      check_forms(qk_norm_grad_case({.heads = heads, .dtype = dtype}, 2, 70, dtype));
      if (HasFailure()) return;
    }
  }
}

TEST(DeviceRows, RopeOfManyHeads) {
  for (const DType dtype : kTypes) check_case(rope_case({.heads = {32, 8, 128}}, 2, 33, dtype));
}

TEST(DeviceRows, BiasGradientOfManyRows) {
  for (const DType dtype : kTypes) {
    check_forms(bias_grad_case(Shape{3, 1700, 384}, dtype, DType::f32));
    check_forms(bias_grad_case(Shape{2, 801, 1030}, dtype, dtype));
  }
}

TEST(DeviceRows, CrossEntropyOfALargeVocabulary) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t vocabulary : {50257, 50304}) {
      check_case(cross_entropy_case(Shape{5, vocabulary}, dtype));
      check_case(cross_entropy_grad_case(Shape{5, vocabulary}, dtype));
      check_case(cross_entropy_part_case(Shape{5, vocabulary}, dtype));
    }
  }
}

// ---- embedding

void set_ids(reference::RefValue& ids, const std::function<std::int64_t(std::int64_t)>& id_of) {
  auto& values = std::get<reference::RefTensor>(ids);
  for (std::int64_t token = 0; token < values.elements(); ++token) values[token] = static_cast<double>(id_of(token));
}

TEST(DeviceRows, EmbeddingGradientOfManyTokens) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{70000}}) {
      Case test = embed_grad_case(Shape{3, 1111}, rows, rows == 70000 ? 12 : 260, dtype, DType::f32);
      check_forms(test);
      if (HasFailure()) return;
    }
  }
}

TEST(DeviceRows, EmbeddingGradientOfFrequentIds) {
  const Case plain = embed_grad_case(Shape{2, 3001}, 500, 36, DType::bf16, DType::f32);
  for (const Case& test : {plain, accumulating_case(plain, *ops::definition_of(plain.op).accumulating(plain.op))}) {
    std::vector<reference::RefValue> values = draw_inputs(test);
    set_ids(values[0], [](std::int64_t) { return 7; });
    check_values(test, values);
    set_ids(values[0], [](std::int64_t token) { return token % 3 == 0 ? 499 : token % 40; });
    check_values(test, values);
    set_ids(values[0], [](std::int64_t token) { return token % 5 == 0 ? ops::kElsewhere : token / 33; });
    check_values(test, values);
    set_ids(values[0], [](std::int64_t) { return std::int64_t{ops::kElsewhere}; });
    check_values(test, values);
  }
}

// ---- the processor's bits

std::vector<Bytes> on_processor(const Case& test, const std::vector<Bytes>& inputs) {
  const std::vector<TensorType> input_types = test.input_types();
  const std::vector<TensorType> output_types = test.output_types();
  const ops::KernelChoice choice = cpu::choose({test.op, input_types, output_types, 1, true});
  return run_case(cpu::kernel_named(choice.name), test, inputs, {});
}

// So state may be updated where it lies, and a run does not depend on where that is.
TEST(DeviceRows, UpdatesHaveTheProcessorsBits) {
  const Shape shape{33'001};
  for (const std::int64_t updates : {0, 1, 5, 999, 123'456}) {
    ops::StepScalars scalars = mid_run();
    scalars.updates = updates;
    for (const DType gradient : kTypes) {
      for (const bool flag : {false, true}) {
        const tests::AdamUpdate adam{.beta2 = flag ? 0.95 : 0.999, .weight_decay = 0.1, .decoupled = flag, .copy = flag};
        const tests::SgdUpdate sgd{.momentum = flag ? 0.9 : 0.0, .weight_decay = 0.1, .copy = flag};
        for (const Case& test :
             {update_case(adam, shape, gradient, DType::bf16, scalars), update_case(sgd, shape, gradient, DType::f16, scalars)}) {
          const std::vector<Bytes> inputs = encoded(draw_inputs(test), test);
          EXPECT_EQ(run_on_device(chosen(test), test, inputs, device_memory(), {}), on_processor(test, inputs))
              << test.name() << ", update " << updates;
        }
      }
    }
  }
}

// Rounded at random, or in halves: with a rate of zero, ties stay ties.
TEST(DeviceRows, UpdatesOfLeanStatesHaveTheProcessorsBits) {
  constexpr StateForms kForms[] = {
      {.weight = DType::bf16}, {.moments = DType::bf16}, {.weight = DType::bf16, .moments = DType::bf16}, {.weight = DType::f32}};
  for (const std::int64_t count : {1, 7, 1030, 33'001}) {
    const Shape shape{count};
    for (const float rate : {0.0f, 3e-3f}) {
      ops::StepScalars scalars = mid_run();
      scalars.learning_rate = rate;
      for (const DType gradient : kTypes) {
        for (const StateForms& forms : kForms) {
          std::vector<Case> cases{
              update_case(tests::AdamUpdate{.weight_decay = 0.1}, shape, gradient, DType::bf16, scalars, forms),
              update_case(tests::AdamUpdate{.weight_decay = 0.1, .copy = true}, shape, gradient, DType::bf16, scalars, forms),
              update_case(tests::SgdUpdate{.momentum = 0.9, .copy = true}, shape, gradient, DType::bf16, scalars, forms),
              update_case(tests::SgdUpdate{}, shape, gradient, DType::bf16, scalars, {.weight = DType::bf16}),
              update_case(tests::AdamUpdate{.split = true}, shape, gradient, DType::bf16, scalars, {.moments = forms.moments})};
          for (const Case& test : cases) {
            const std::vector<Bytes> inputs = encoded(draw_inputs(test), test);
            EXPECT_EQ(run_on_device(chosen(test), test, inputs, device_memory(), {}), on_processor(test, inputs)) << test.name();
          }
        }
      }
    }
  }
}

TEST(DeviceRows, SumsHaveTheProcessorsBits) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{1}, Shape{17}, Shape{1023}, Shape{1025}, Shape{300, 777}, Shape{1100, 1024}}) {
      std::vector<Case> cases{sum_case(ops::SquaredNorm{}, shape, dtype)};
      if (dtype == DType::f32) cases.push_back(sum_case(ops::SumLoss{}, Shape{shape.elements()}, dtype));
      for (const Case& test : cases) {
        const std::vector<Bytes> inputs = encoded(draw_inputs(test), test);
        EXPECT_EQ(run_on_device(chosen(test), test, inputs, device_memory(), {}), on_processor(test, inputs)) << test.name();
      }
    }
  }
}

TEST(DeviceRows, DropoutHasTheProcessorsMask) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 64, 768}, Shape{5, 1030}}) {
      const Case test = dropout_case(0.3, shape, dtype);
      const std::vector<Bytes> inputs = encoded(draw_inputs(test), test);
      EXPECT_EQ(run_on_device(chosen(test), test, inputs, device_memory(), {}), on_processor(test, inputs)) << test.name();
    }
  }
}

// ---- many tensors in one launch

// As many calls of a kernel, on operands one after the other in the device's memory.
class Calls {
 public:
  explicit Calls(const std::vector<Case>& cases) : cases_(cases) {
    std::int64_t at = 0;
    const auto place = [&](const TensorType& type) {
      const std::int64_t start = at;
      at += (type.bytes() + 63) / 64 * 64;
      return cuda::Tensor{device_memory().data() + start, type};
    };
    const cuda::Tensor scalars = place(ops::step_scalars_type());
    for (const Case& test : cases_) {
      const std::vector<TensorType> types = test.input_types();
      inputs_.emplace_back();
      for (std::size_t i = 0; i < types.size(); ++i) inputs_.back().push_back(i == 0 ? scalars : place(types[i]));
      outputs_.emplace_back();
      for (const TensorType& type : test.output_types()) outputs_.back().push_back({nullptr, type});
      for (const ops::Alias& alias : ops::aliases_of(test.op))
        outputs_.back()[static_cast<std::size_t>(alias.output)].data = inputs_.back()[static_cast<std::size_t>(alias.input)].data;
      values_.push_back(encoded(draw_inputs(test), test));
    }
    bytes_ = at;
    for (std::size_t n = 0; n < cases_.size(); ++n) calls_.push_back({cases_[n].op, inputs_[n], outputs_[n], nullptr, nullptr});
  }

  template <typename Launch>
  Bytes after(const Launch& launch) {
    for (std::size_t n = 0; n < cases_.size(); ++n) {
      for (std::size_t i = 0; i < inputs_[n].size(); ++i)
        cuda::check(cudaMemcpy(inputs_[n][i].data, values_[n][i].data(), values_[n][i].size(), cudaMemcpyHostToDevice), "upload");
    }
    launch(std::span<const cuda::Call>(calls_));
    Bytes memory(static_cast<std::size_t>(bytes_));
    cuda::check(cudaMemcpy(memory.data(), device_memory().data(), memory.size(), cudaMemcpyDeviceToHost), "download");
    return memory;
  }

 private:
  std::vector<Case> cases_;
  std::vector<std::vector<cuda::Tensor>> inputs_, outputs_;
  std::vector<std::vector<Bytes>> values_;
  std::vector<cuda::Call> calls_;
  std::int64_t bytes_ = 0;
};

TEST(DeviceRows, ManyTensorsAtOnceAreThoseTensorsOneByOne) {
  std::vector<Case> adam, sgd, norms;
  for (std::int64_t n = 0; n < 75; ++n) {
    const Shape shape{1 + n * n * 13 % 9973};
    const DType gradient = kTypes[n % 3];
    const StateForms forms{.weight = n % 5 == 0 ? DType::bf16 : DType::f32, .moments = n % 3 == 0 ? DType::bf16 : DType::f32};
    adam.push_back(update_case(tests::AdamUpdate{.weight_decay = n % 2 == 0 ? 0.1 : 0.0, .copy = n % 4 == 0, .split = n % 4 == 1}, shape,
                               gradient, DType::bf16, mid_run(), forms));
    sgd.push_back(
        update_case(tests::SgdUpdate{.momentum = n % 2 == 0 ? 0.9 : 0.0, .copy = n % 4 == 0}, shape, gradient, DType::f16, mid_run()));
    norms.push_back(sum_case(ops::SquaredNorm{}, shape, gradient));
  }
  for (const std::vector<Case>& cases : {adam, sgd, norms}) {
    const cuda::Kernel& kernel = chosen(cases.front());
    ASSERT_NE(kernel.launch_many, nullptr) << kernel.name;
    Calls calls(cases);
    const Bytes together = calls.after([&](std::span<const cuda::Call> all) { kernel.launch_many(all, nullptr); });
    const Bytes alone = calls.after([&](std::span<const cuda::Call> all) {
      for (const cuda::Call& call : all) kernel.launch(call, nullptr);
    });
    EXPECT_TRUE(together == alone) << kernel.name;
  }
}

}  // namespace
}  // namespace plimsoll::op_cases
