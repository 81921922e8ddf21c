// What definitions promise beside adjoints: result types, work, accumulating forms, text.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "kernels/cpu/reference/compute.h"
#include "ops/build_cases.h"
#include "ops/cases.h"
#include "ops/masks/rules.h"
#include "ops/optim/rules.h"

namespace plimsoll::op_cases {
namespace {

namespace reference = kernels::cpu::reference;

// Types do not depend on size; the kernels' tests go through the large ones.
std::vector<Case> small_cases() {
  std::vector<Case> cases = test_cases();
  std::erase_if(cases, [](const Case& test) { return ops::bytes_of(test.input_types(), test.output_types()) > 60'000.0; });
  return cases;
}

TEST(Definition, InferredTypesAreWhatTheReferenceGives) {
  for (const Case& test : small_cases()) {
    SCOPED_TRACE(test.name());
    const std::vector<TensorType> types = test.output_types();
    const reference::Results results = reference::evaluate(test.op, draw_inputs(test));
    ASSERT_EQ(types.size(), results.size());
    for (std::size_t output = 0; output < types.size(); ++output) {
      if (const auto* tensor = std::get_if<reference::RefTensor>(&results[output])) {
        EXPECT_EQ(tensor->shape, types[output].shape) << base::to_string(tensor->shape) << " as " << base::to_string(types[output]);
      } else {
        const bool sums = std::holds_alternative<ops::ParameterSums>(results[output]);
        EXPECT_EQ(types[output], sums ? ops::parameter_sums_type() : ops::step_scalars_type());
      }
    }
  }
}

TEST(Definition, OperandsThatDoNotFitAreRefusedWithTheirTypes) {
  for (const Case& test : test_cases()) {
    std::vector<TensorType> types = test.input_types();
    types.push_back({DType::f32, Shape{3}});
    types.push_back({DType::f32, Shape{3}});
    types.push_back({DType::f32, Shape{3}});
    try {
      ops::definition_of(test.op).infer(test.op, types);
      // Operators that look at the first operand only take it as it is.
      const bool unary = test.inputs.size() == 1;
      EXPECT_TRUE(unary) << test.name() << ": three operands too many were taken";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
      const std::string message = error.what();
      EXPECT_NE(message.find(ops::name_of(test.op)), std::string::npos) << message;
      EXPECT_NE(message.find("f32[3]"), std::string::npos) << message;
    }
  }
}

TEST(Definition, WorkIsFiniteAndMovesNoMoreThanItsOperands) {
  for (const Case& test : test_cases()) {
    SCOPED_TRACE(test.name());
    const std::vector<TensorType> inputs = test.input_types();
    const std::vector<TensorType> outputs = test.output_types();
    const ops::Work work = ops::definition_of(test.op).work(test.op, inputs, outputs);
    EXPECT_TRUE(std::isfinite(work.flops) && work.flops >= 0.0) << work.flops;
    EXPECT_GT(work.bytes, 0.0);
    // A lookup reads a row again for every position that names it: bounded by what it writes.
    const double gathered = std::holds_alternative<ops::Embed>(test.op) || std::holds_alternative<ops::EmbedGrad>(test.op) ? 4.0 : 1.0;
    EXPECT_LE(work.bytes, gathered * ops::bytes_of(inputs, outputs));
  }
}

double flops(const Case& test) { return ops::definition_of(test.op).work(test.op, test.input_types(), test.output_types()).flops; }

TEST(Definition, WorkOfProductsIsTwiceTheMultiplications) {
  const Shape x{3, 5, 7};
  const double product = 2.0 * 15.0 * 7.0 * 11.0;
  EXPECT_EQ(flops(linear_case({}, x, 11, DType::f32)), product);
  EXPECT_EQ(flops(linear_grad_input_case(Shape{3, 5, 11}, 7, DType::f32)), product);
  EXPECT_EQ(flops(linear_grad_weight_case(Shape{3, 5, 11}, 7, DType::f32, DType::f32)), product);
  const double loss = flops(head_loss_case({}, x, 11, DType::f32));
  EXPECT_GE(loss, product);
  EXPECT_EQ(flops(head_loss_case({.gradients = true}, x, 11, DType::f32)) - loss, 2.0 * product);
}

TEST(Definition, WorkOfAttentionCountsTheScoresThatAreSeen) {
  const ops::Attention full{.heads = {4, 2, 8}, .causal = false};
  ops::Attention causal = full;
  causal.causal = true;
  EXPECT_EQ(flops(attention_case(full, 2, 10, DType::f32)), 4.0 * 2.0 * 4.0 * 8.0 * 100.0);
  EXPECT_EQ(flops(attention_case(causal, 2, 10, DType::f32)), 4.0 * 2.0 * 4.0 * 8.0 * 55.0);
  EXPECT_EQ(flops(attention_grad_case(causal, 2, 10, DType::f32)), 2.5 * flops(attention_case(causal, 2, 10, DType::f32)));
}

TEST(Definition, AccumulatingFormIsThePlainFormPlusThePresentValue) {
  int checked = 0;
  for (const Case& plain : small_cases()) {
    const ops::Definition& definition = ops::definition_of(plain.op);
    if (definition.accumulating == nullptr) continue;
    const std::optional<ops::Op> form = definition.accumulating(plain.op);
    if (!form) continue;
    SCOPED_TRACE(plain.name());
    ++checked;
    EXPECT_EQ(definition.accumulating(*form), std::nullopt) << "an accumulating form has no further one";
    EXPECT_EQ(definition.accumulated_outputs(*form), definition.accumulated_outputs(plain.op));

    const Case test = accumulating_case(plain, *form);
    EXPECT_EQ(test.output_types(), plain.output_types());
    const std::vector<reference::RefValue> inputs = draw_inputs(test);
    const std::span<const reference::RefValue> plain_inputs(inputs.data(), plain.inputs.size());
    const reference::Results sums = reference::evaluate(*form, inputs);
    reference::Results expected = reference::evaluate(plain.op, plain_inputs);
    std::size_t present = plain.inputs.size();
    for (const int output : definition.accumulated_outputs(plain.op)) {
      reference::add_to(std::get<reference::RefTensor>(expected[static_cast<std::size_t>(output)]), reference::tensor(inputs[present++]));
    }
    for (std::size_t output = 0; output < expected.size(); ++output) {
      EXPECT_EQ(reference::tensor(sums[output]).values, reference::tensor(expected[output]).values) << "output " << output;
    }
    // Each sum must lie where the present value was.
    std::vector<ops::Alias> aliases = ops::aliases_of(*form);
    EXPECT_EQ(std::count_if(aliases.begin(), aliases.end(), [](const ops::Alias& alias) { return alias.required; }),
              static_cast<std::int64_t>(definition.accumulated_outputs(*form).size()));
  }
  EXPECT_GT(checked, 20);
}

template <std::size_t... Index>
void check_reasons(std::index_sequence<Index...>) {
  const auto check = [](const ops::Op& op) {
    const ops::Definition& definition = ops::definition_of(op);
    EXPECT_NE(definition.adjoint == nullptr, definition.no_adjoint.empty()) << ops::name_of(op);
  };
  (check(std::variant_alternative_t<Index, ops::Op>{}), ...);
}

TEST(Definition, EveryOperatorHasAnAdjointOrSaysWhyNot) { check_reasons(std::make_index_sequence<std::variant_size_v<ops::Op>>()); }

// ---- text

class RandomFields {
 public:
  explicit RandomFields(std::uint64_t seed) : key_(base::random_key(seed, 5)) {}

  void operator()(std::string_view, bool& field) { field = word() % 2 == 0; }
  void operator()(std::string_view, int& field) { field = static_cast<int>(word() % 1000); }
  void operator()(std::string_view, std::int64_t& field) { field = static_cast<std::int32_t>(word()); }
  void operator()(std::string_view, std::uint64_t& field) { field = static_cast<std::uint64_t>(word()) << 32 | word(); }
  void operator()(std::string_view, double& field) {
    const double mantissa = static_cast<double>(word()) + static_cast<double>(word()) * 0x1p-32;
    field = std::ldexp(word() % 2 == 0 ? mantissa : -mantissa, static_cast<int>(word() % 200) - 100);
  }
  void operator()(std::string_view, DType& field) { field = static_cast<DType>(word() % 9); }
  void operator()(std::string_view name, std::optional<DType>& field) {
    field.reset();
    if (word() % 2 == 0) (*this)(name, field.emplace());
  }
  void operator()(std::string_view, ops::ActivationKind& field) { field = static_cast<ops::ActivationKind>(word() % 5); }
  void operator()(std::string_view, ops::NormKind& field) { field = static_cast<ops::NormKind>(word() % 2); }
  void operator()(std::string_view, ops::Axis& field) {
    field = word() % 5 == 0 ? ops::Axis("other_0") : ops::kAxes[word() % ops::kAxes.size()].axis;
  }
  void operator()(std::string_view, const ops::FormInfo*& field) { field = &ops::forms()[word() % ops::forms().size()]; }
  void operator()(std::string_view, ops::Tier& field) { field = static_cast<ops::Tier>(word() % 3); }
  void operator()(std::string_view, ops::CollectiveKind& field) {
    field = static_cast<ops::CollectiveKind>(word() % ops::kCollectiveKinds);
  }
  void operator()(std::string_view, Shape& field) {
    std::vector<std::int64_t> dims(1 + word() % 4);
    for (std::int64_t& extent : dims) extent = 1 + word() % 1000;
    field = Shape(std::span<const std::int64_t>(dims));
  }
  void operator()(std::string_view, ops::MaskPattern& field) {
    if (word() % 2 == 0)
      field = {ops::find_mask_rule("strided"), {static_cast<std::int64_t>(word() % 99), 1 + static_cast<std::int64_t>(word() % 99)}};
  }
  void operator()(std::string_view, ops::Heads& field) {
    field.kv = 1 + word() % 9;
    field.query = field.kv * (1 + word() % 9);
    field.dim = 1 + word() % 200;
  }

 private:
  std::uint32_t word() { return base::philox({count_++, 0, 0, 0}, key_)[0]; }
  base::RandomKey key_;
  std::uint32_t count_ = 0;
};

template <typename Attributes>
void check_text_of(const Attributes& plain, std::string_view name) {
  EXPECT_EQ(ops::to_string(plain), name) << "defaults are left out";
  EXPECT_EQ(ops::name_of(plain), Attributes::kName);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Attributes attributes = plain;
    RandomFields random(seed);
    Attributes::fields(attributes, random);
    const std::string text = ops::to_string(attributes);
    EXPECT_EQ(ops::parse_op(text), ops::Op(attributes)) << text;
    EXPECT_EQ(ops::to_string(ops::parse_op(text)), text);
  }
}

// Updates have the names of their rules.
template <typename Attributes>
void check_text() {
  if constexpr (std::is_same_v<Attributes, ops::Update>) {
    for (const ops::UpdateRule& rule : ops::update_rules()) check_text_of(ops::Update::by(rule), std::string(rule.name) + "_update");
  } else if constexpr (std::is_same_v<Attributes, ops::UpdatePrelude>) {
    for (const ops::UpdateRule& rule : ops::update_rules())
      check_text_of(ops::UpdatePrelude::by(rule), std::string(rule.name) + "_prelude");
  } else {
    check_text_of(Attributes{}, Attributes::kName);
  }
}

template <std::size_t... Index>
void check_all_texts(std::index_sequence<Index...>) {
  (check_text<std::variant_alternative_t<Index, ops::Op>>(), ...);
}

TEST(Text, EveryOperatorIsReadBackFromItsText) { check_all_texts(std::make_index_sequence<std::variant_size_v<ops::Op>>()); }

TEST(Text, AnythingElseIsRefused) {
  for (const std::string text : {"",
                                 "linea",
                                 "linear(",
                                 "linear(bias=true",
                                 "linear(bias)",
                                 "linear(bias=1)",
                                 "linear(width=3)",
                                 "linear(activation=gelu)",
                                 "dropout(rate=)",
                                 "dropout(rate=0.1x)",
                                 "dropout(site=12)",
                                 "cast(dtype=f64)",
                                 "rope(heads=3:2:8)",
                                 "rope(heads=4:2)",
                                 "rope(heads=0:1:8)",
                                 "collective(axis=)",
                                 "collective(axis=Data)",
                                 "collective(axis=much_too_long_a_name)",
                                 "linear(bias=true))",
                                 "linear()x",
                                 "embed(tables=99999999999999999999)"}) {
    EXPECT_THROW(ops::parse_op(text), base::Error) << text;
  }
}

}  // namespace
}  // namespace plimsoll::op_cases
