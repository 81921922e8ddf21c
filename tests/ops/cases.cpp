#include "ops/cases.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"

namespace plimsoll::op_cases {

namespace {

namespace reference = kernels::cpu::reference;

// Counter-based like everything random here: value n of stream `salt`.
class Stream {
 public:
  explicit Stream(std::uint64_t salt) : key_(base::random_key(salt, base::hash_name("operator cases"))) {}

  std::uint32_t bits(std::uint64_t n) const { return block(n)[0]; }
  double uniform(std::uint64_t n) const { return static_cast<double>(bits(n)) * 0x1p-32; }
  double normal(std::uint64_t n) const {
    const base::RandomBlock words = block(n);
    return static_cast<double>(base::normal_from_bits(words[0], words[1])[0]);
  }

 private:
  base::RandomBlock block(std::uint64_t n) const {
    return base::philox({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32), 0, 0}, key_);
  }
  base::RandomKey key_;
};

double value_at(const Reals& reals, const Stream& stream, std::uint64_t n) {
  const double value = reals.deviation * stream.normal(n);
  return reals.positive ? std::abs(value) : value;
}

double value_at(const Integers& integers, const Stream& stream, std::uint64_t n) {
  return static_cast<double>(integers.low) + std::floor(stream.uniform(n) * static_cast<double>(integers.high - integers.low));
}

std::vector<double> segments(const Shape& shape, const Stream& stream) {
  const std::int64_t length = shape[1];
  std::vector<double> values;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    const auto real = static_cast<std::int64_t>(static_cast<double>(length) * (0.5 + 0.5 * stream.uniform(static_cast<std::uint64_t>(b))));
    double segment = 0.0;
    for (std::int64_t t = 0; t < length; ++t) {
      const bool starts = stream.uniform(static_cast<std::uint64_t>((b + 1) * length + t)) < 4.0 / static_cast<double>(length);
      if (t > 0 && starts) segment += 1.0;
      values.push_back(t < real ? segment : -1.0);
    }
  }
  return values;
}

std::vector<double> rotations(const Shape& shape) {
  const std::int64_t half = shape[1] / 2;
  std::vector<double> values;
  for (std::int64_t position = 0; position < shape[0]; ++position) {
    for (const bool sine : {false, true}) {
      for (std::int64_t d = 0; d < half; ++d) {
        const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(d) / static_cast<double>(half));
        values.push_back(sine ? std::sin(angle) : std::cos(angle));
      }
    }
  }
  return values;
}

}  // namespace

std::vector<TensorType> Case::input_types() const {
  std::vector<TensorType> types;
  for (const Input& input : inputs) types.push_back(input.type);
  return types;
}

std::vector<TensorType> Case::output_types() const { return ops::definition_of(op).infer(op, input_types()); }

std::string Case::name() const {
  std::string text = ops::to_string(op);
  const char* separator = " ";
  for (const Input& input : inputs) {
    text += separator + (input.type == ops::step_scalars_type() ? "scalars" : base::to_string(input.type));
    separator = ", ";
  }
  return text;
}

Case accumulating_case(const Case& plain, const ops::Op& accumulating) {
  Case test{accumulating, plain.inputs, plain.gradient_inputs, plain.gradient_outputs};
  const std::vector<TensorType> outputs = plain.output_types();
  for (const int output : ops::definition_of(plain.op).accumulated_outputs(plain.op)) {
    if (!test.gradient_inputs.empty()) test.gradient_inputs.push_back(test.inputs.size());
    test.inputs.push_back({outputs[static_cast<std::size_t>(output)]});
  }
  return test;
}

std::vector<double> draw_values(const Input& input, std::int64_t count, std::uint64_t salt) {
  const Stream stream(salt);
  if (std::holds_alternative<Segments>(input.source)) return segments(input.type.shape, stream);
  if (std::holds_alternative<Rotations>(input.source)) return rotations(input.type.shape);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::uint64_t n = 0; n < values.size(); ++n) {
    const auto* integers = std::get_if<Integers>(&input.source);
    values[n] = integers != nullptr ? value_at(*integers, stream, n) : value_at(std::get<Reals>(input.source), stream, n);
  }
  return values;
}

reference::RefValue made_input(const Case& test, std::size_t index, const std::vector<reference::RefValue>& values) {
  const auto& made = std::get<Made>(test.inputs[index].source);
  std::vector<reference::RefValue> operands;
  for (const std::size_t operand : made.operands) operands.push_back(values[operand]);
  return reference::evaluate(made.op, operands)[made.output];
}

std::vector<reference::RefValue> draw_inputs(const Case& test) {
  const std::uint64_t salt = base::hash_name(test.name());
  std::vector<reference::RefValue> values(test.inputs.size());
  const auto put = [&](std::size_t index, reference::RefTensor tensor) {
    for (double& value : tensor.values) value = reference::rounded(value, test.inputs[index].type.dtype);
    values[index] = std::move(tensor);
  };
  for (std::size_t index = 0; index < values.size(); ++index) {
    const Input& input = test.inputs[index];
    if (const auto* scalars = std::get_if<ops::StepScalars>(&input.source)) {
      values[index] = *scalars;
    } else if (const auto* sums = std::get_if<ops::ParameterSums>(&input.source)) {
      values[index] = *sums;
    } else if (const auto* encoded = std::get_if<Encoded>(&input.source)) {
      const Input elements{{DType::f32, encoded->shape}};
      const reference::RefValue drawn =
          reference::RefTensor(encoded->shape, draw_values(elements, encoded->shape.elements(), salt + index));
      put(index, reference::tensor(reference::evaluate(encoded->op, std::span(&drawn, 1))[0]));
    } else if (!std::holds_alternative<Made>(input.source)) {
      put(index, {input.type.shape, draw_values(input, input.type.shape.elements(), salt + index)});
    }
  }
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (!std::holds_alternative<Made>(test.inputs[index].source)) continue;
    values[index] = made_input(test, index, values);
    if (auto* tensor = std::get_if<reference::RefTensor>(&values[index])) put(index, std::move(*tensor));
  }
  return values;
}

namespace {

template <std::size_t... Index>
std::vector<std::string> names_of_operators(std::index_sequence<Index...>) {
  return {std::string(std::variant_alternative_t<Index, ops::Op>::kName)...};
}

}  // namespace

std::vector<std::string> computed_operators() {
  std::vector<std::string> names = names_of_operators(std::make_index_sequence<std::variant_size_v<ops::Op>>());
  for (const char* moved : {"collective", "message", "move", "move_rows", "view", "slice", "own_shard"}) std::erase(names, moved);
  return names;
}

}  // namespace plimsoll::op_cases
