#include <functional>

#include "base/processor.h"
#include "kernels_rows/harness.h"
#include "ops/optim/adam.h"
#include "ops/optim/rules.h"
#include "support/updates.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

// The operands of an update, all written in place, and their values in double.
struct Update {
  Update(DType gradient_dtype, const std::vector<DType>& written, std::int64_t count, std::int64_t updates, float multiplier)
      : scalars(scalars_data({})), gradient(random_data(gradient_dtype, Shape{count}, 1)) {
    auto& values = *scalars.as<ops::StepScalars>();
    values.learning_rate = 0.01f;
    values.updates = updates;
    values.gradient_multiplier = multiplier;
    for (std::size_t index = 0; index < written.size(); ++index)
      operands.push_back(random_data(written[index], Shape{count}, 2 + static_cast<unsigned>(index)));
  }

  void run(const ops::Op& op, int threads) {
    std::vector<Data*> inputs{&scalars, &gradient}, outputs;
    for (Data& operand : operands) inputs.push_back(&operand), outputs.push_back(&operand);
    call_kernel(optimizer_kernels(), op, inputs, outputs, threads);
  }

  Data scalars;
  Data gradient;
  std::vector<Data> operands;
};

void make_positive(Data& data) {
  for (std::int64_t index = 0; index < data.size(); ++index) data.set(index, std::abs(data[index]));
}

void expect_copy(const Data& copy, const Data& weight) {
  Data expected(copy.type);
  for (std::int64_t index = 0; index < copy.size(); ++index) expected.set(index, weight[index]);
  EXPECT_TRUE(copy == expected);
}

constexpr std::int64_t kCounts[] = {1, 15, 1000, 33001};

TEST(AdamUpdate, MatchesDoubles) {
  for (DType dtype : kFloats) {
    for (DType copy_dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (bool decoupled : {false, true}) {
        for (std::int64_t count : kCounts) {
          const bool copy = copy_dtype != DType::f32;
          const tests::AdamUpdate op{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = decoupled, .copy = copy};
          std::vector<DType> written{DType::f32, DType::f32, DType::f32};
          if (copy) written.push_back(copy_dtype);
          Update update(dtype, written, count, 6, 0.5f);
          make_positive(update.operands[2]);
          std::vector<double> w = doubles(update.operands[0]), m = doubles(update.operands[1]), v = doubles(update.operands[2]);
          for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = update.gradient[static_cast<std::int64_t>(i)] * 0.5 + (decoupled ? 0.0 : 0.1 * w[i]);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            const double step = m[i] / (1.0 - std::pow(0.9, 7)) / (std::sqrt(v[i] / (1.0 - std::pow(0.95, 7))) + 1e-8);
            w[i] -= 0.01f * (step + (decoupled ? 0.1 * w[i] : 0.0));
          }
          Update again = update;
          update.run(op, 1);
          expect_close(update.operands[0], w);
          expect_close(update.operands[1], m);
          expect_close(update.operands[2], v);
          if (copy) expect_copy(update.operands[3], update.operands[0]);
          for (int threads : {2, 3}) {
            Update other = again;
            other.run(op, threads);
            for (std::size_t index = 0; index < written.size(); ++index) EXPECT_TRUE(other.operands[index] == update.operands[index]);
          }
          for_each_target([&] {
            Update other = again;
            other.run(op, 2);
            expect_close(other.operands[0], w);
            if (copy) expect_copy(other.operands[3], other.operands[0]);
          });
        }
      }
    }
  }
}

TEST(SgdUpdate, MatchesDoubles) {
  for (DType dtype : kFloats) {
    for (double momentum : {0.0, 0.9}) {
      for (bool copy : {false, true}) {
        for (std::int64_t count : kCounts) {
          const tests::SgdUpdate op{.momentum = momentum, .weight_decay = 0.1, .copy = copy};
          std::vector<DType> written{DType::f32};
          if (momentum != 0.0) written.push_back(DType::f32);
          if (copy) written.push_back(DType::bf16);
          Update update(dtype, written, count, 6, 0.5f);
          std::vector<double> w = doubles(update.operands[0]);
          std::vector<double> velocity = momentum != 0.0 ? doubles(update.operands[1]) : std::vector<double>(w.size());
          for (std::size_t i = 0; i < w.size(); ++i) {
            velocity[i] = momentum * velocity[i] + update.gradient[static_cast<std::int64_t>(i)] * 0.5 + 0.1 * w[i];
            w[i] -= 0.01f * velocity[i];
          }
          Update other = update;
          update.run(op, 1);
          other.run(op, 3);
          expect_close(update.operands[0], w);
          if (momentum != 0.0) expect_close(update.operands[1], velocity);
          if (copy) expect_copy(update.operands.back(), update.operands[0]);
          for (std::size_t index = 0; index < written.size(); ++index) EXPECT_TRUE(other.operands[index] == update.operands[index]);
        }
      }
    }
  }
}

TEST(Updates, WriteNothingWhenSkipped) {
  Update adam(DType::f16, {DType::f32, DType::f32, DType::f32, DType::f16}, 5000, 6, NAN);
  Update sgd(DType::f32, {DType::f32, DType::f32}, 5000, 6, NAN);
  adam.scalars.as<ops::StepScalars>()->skip = 1;
  sgd.scalars.as<ops::StepScalars>()->skip = 1;
  const std::vector<Data> adam_before = adam.operands, sgd_before = sgd.operands;
  adam.run(tests::AdamUpdate{.copy = true}, 2);
  sgd.run(tests::SgdUpdate{.momentum = 0.9}, 2);
  for (std::size_t index = 0; index < adam_before.size(); ++index) EXPECT_TRUE(adam.operands[index] == adam_before[index]);
  for (std::size_t index = 0; index < sgd_before.size(); ++index) EXPECT_TRUE(sgd.operands[index] == sgd_before[index]);
}

// The kernel of an update that sends.
std::string choose_for(const ops::Op& op, const Update& update, DType sent) {
  std::vector<base::TensorType> inputs{update.scalars.type, update.gradient.type}, outputs;
  for (const Data& operand : update.operands) inputs.push_back(operand.type), outputs.push_back(operand.type);
  outputs.push_back({sent, update.gradient.type.shape});
  return choose({.op = op, .inputs = inputs, .outputs = outputs}).name;
}

// One pass that leaves what two leave, in a step that is skipped too, wherever the result lies.
void check_sending(ops::Update op, DType gradient, DType sent, std::int64_t count, bool skip) {
  const std::size_t states = 1 + op.states();
  Update apart(gradient, std::vector<DType>(states, DType::f32), count, 6, 0.5f);
  apart.scalars.as<ops::StepScalars>()->skip = skip ? 1 : 0;
  const Update before = apart;
  apart.run(op, 2);
  Data expected({sent, Shape{count}});
  narrow(sent, apart.operands[0].as<float>(), expected.as<std::byte>(), count);
  op.sends = sent;
  const Kernel& kernel = kernel_named(choose_for(op, before, sent));
  EXPECT_TRUE(kernel.name.ends_with(".simd")) << kernel.name;
  Data padded({sent, Shape{count + 4}});
  for (std::int64_t shift : {0, 1, 3}) {
    Update now = before;
    std::vector<Tensor> in{now.scalars.tensor(), now.gradient.tensor()}, out;
    for (Data& operand : now.operands) in.push_back(operand.tensor()), out.push_back(operand.tensor());
    std::byte* to = padded.as<std::byte>() + shift * base::size_of(sent);
    out.push_back({to, {sent, Shape{count}}});
    kernel.run({.op = op, .inputs = in, .outputs = out, .threads = 2});
    for (std::size_t index = 0; index < states; ++index) EXPECT_TRUE(now.operands[index] == apart.operands[index]);
    EXPECT_EQ(std::memcmp(to, expected.bytes(), static_cast<std::size_t>(expected.type.bytes())), 0)
        << ops::to_string(op) << " of " << count << (skip ? ", skipped" : "");
  }
}

TEST(SendingUpdate, IsTheUpdateAndThenTheCast) {
  for (DType gradient : kFloats) {
    for (DType sent : kFloats) {
      for (std::int64_t count : {1, 1000, 33001, 100'000}) {
        for (bool skip : {false, true}) {
          check_sending(tests::AdamUpdate{.weight_decay = 0.1}, gradient, sent, count, skip);
          check_sending(tests::SgdUpdate{.momentum = 0.9}, gradient, sent, count, skip);
          check_sending(tests::SgdUpdate{}, gradient, sent, count, skip);
        }
      }
    }
  }
}

TEST(SendingUpdate, ACopyThatLeavesIsTheCopy) {
  for (DType copy : kFloats) {
    for (bool skip : {false, true}) {
      for (ops::Update op : {ops::Update(tests::AdamUpdate{.copy = true}), ops::Update(tests::SgdUpdate{.momentum = 0.9, .copy = true})}) {
        std::vector<DType> written(1 + op.states(), DType::f32);
        written.push_back(copy);
        Update expected(DType::bf16, written, 70'001, 6, 0.5f);
        expected.scalars.as<ops::StepScalars>()->skip = skip ? 1 : 0;
        Update found = expected;
        expected.run(op, 2);
        op.leaves = true;
        found.run(op, 2);
        for (std::size_t index = 0; index < written.size(); ++index) EXPECT_TRUE(found.operands[index] == expected.operands[index]);
      }
    }
  }
}

template <bool kDecayApart>
void check_adam_step(std::int64_t t) {
  const auto step = ops::AdamRule<kDecayApart>::template step<float>(
      {.numbers = {0.9, 0.999, 1e-8}, .weight_decay = 0.1, .learning_rate = 3e-4f, .multiplier = 0.25f, .update = t});
  const double lr = 3e-4f;
  EXPECT_EQ(step.multiplier, 0.25f);
  EXPECT_FLOAT_EQ(step.coupled_decay, kDecayApart ? 0.0f : 0.1f);
  EXPECT_FLOAT_EQ(step.keep, kDecayApart ? static_cast<float>(1.0 - lr * 0.1) : 1.0f);
  EXPECT_FLOAT_EQ(step.rate, static_cast<float>(lr / (1.0 - std::pow(0.9, static_cast<double>(t)))));
  EXPECT_FLOAT_EQ(step.spread, static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(0.999, static_cast<double>(t)))));
}

TEST(AdamStep, IsTheFormulaInDoubles) {
  for (std::int64_t t : {1, 2, 3, 10, 999, 1000, 65536, 1'000'001}) {
    check_adam_step<false>(t);
    check_adam_step<true>(t);
  }
}

struct Numbers {
  double g, w, first, second;
};

// `step` makes w and the averages of one element, in double, from g * 0.5.
void check_rule(std::string_view name, std::size_t states, double decay, const std::function<void(Numbers&)>& step) {
  for (DType dtype : kFloats) {
    for (std::int64_t count : kCounts) {
      ops::Update op = ops::Update::by(ops::update_rule(name));
      op.weight_decay = decay;
      Update update(dtype, std::vector<DType>(1 + states, DType::f32), count, 6, 0.5f);
      if (states > 1) make_positive(update.operands[2]);
      std::vector<Numbers> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        Numbers& now = expected.emplace_back(
            Numbers{update.gradient[i] * 0.5, update.operands[0][i], update.operands[1][i], states > 1 ? update.operands[2][i] : 0.0});
        step(now);
      }
      update.run(op, 2);
      for (std::int64_t i = 0; i < count; ++i) {
        const Numbers& now = expected[static_cast<std::size_t>(i)];
        ASSERT_NEAR(update.operands[0][i], now.w, 2e-6 * (1.0 + std::abs(now.w))) << name << ", element " << i;
        ASSERT_NEAR(update.operands[1][i], now.first, 2e-6 * (1.0 + std::abs(now.first))) << name;
        if (states > 1) {
          ASSERT_NEAR(update.operands[2][i], now.second, 2e-6 * (1.0 + std::abs(now.second))) << name;
        }
      }
    }
  }
}

TEST(LionUpdate, MatchesDoubles) {
  check_rule("lion", 1, 0.1, [](Numbers& now) {
    const double along = 0.9 * now.first + 0.1 * now.g;
    now.w -= 0.01f * ((along > 0.0 ? 1.0 : along < 0.0 ? -1.0 : 0.0) + 0.1 * now.w);
    now.first = 0.99 * now.first + 0.01 * now.g;
  });
}

TEST(RmspropUpdate, MatchesDoubles) {
  check_rule("rmsprop", 2, 0.1, [](Numbers& now) {
    const double g = now.g + 0.1 * now.w;
    now.second = 0.99 * now.second + 0.01 * g * g;
    now.first = g / (std::sqrt(now.second) + 1e-8);
    now.w -= 0.01f * now.first;
  });
}

// Every instruction set that is here gives the bits of the plain code.
TEST(UpdateRules, AreTheSameBitsOnEveryInstructionSet) {
  constexpr std::int64_t kCount = 1037;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    for (const std::int64_t update : {1, 7}) {
      const ops::RuleStep step =
          rule.prepare({.numbers = rule.usual(), .weight_decay = 0.1, .learning_rate = 0.01f, .multiplier = 0.7f, .update = update});
      std::vector<std::vector<float>> found;
      for (const base::RowCode code : codes_here()) {
        std::vector<Data> tensors;
        for (unsigned seed = 0; seed < 5; ++seed) tensors.push_back(random_data(DType::f32, Shape{kCount}, seed));
        make_positive(tensors[3]);
        rule.update.of(code)(step, {.gradient = tensors[0].as<float>(),
                                    .weight = tensors[1].as<float>(),
                                    .state = {tensors[2].as<float>(), tensors[3].as<float>()},
                                    .count = kCount,
                                    .direction = tensors[4].as<float>()});
        std::vector<float>& all = found.emplace_back();
        for (std::size_t written = 1; written < 4; ++written)
          all.insert(all.end(), tensors[written].as<float>(), tensors[written].as<float>() + kCount);
      }
      for (const std::vector<float>& other : found) EXPECT_TRUE(other == found.front()) << rule.name;
    }
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing
