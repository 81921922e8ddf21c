// The reference as rows of the kernel table: one per operator, made from the closed set of operators, so none can be
// forgotten.
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/convert.h"
#include "kernels/cpu/table.h"

namespace plimsoll::kernels::cpu {

namespace reference {

namespace {

RefValue read(const Tensor& operand) { return load_value(operand.data, operand.type); }

void write(const RefValue& result, const Tensor& to) { store_value(result, to.data, to.type); }

// Everything is read before anything is written, so outputs may lie on inputs.
void run(const Call& call) {
  Results operands;
  for (const Tensor& input : call.inputs) operands.push_back(read(input));
  const Results results = evaluate(call.op, operands);
  PLIMSOLL_CHECK(results.size() == call.outputs.size(), "[{}] gives {} results, the call has room for {}", ops::name_of(call.op),
                 results.size(), call.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) write(results[i], call.outputs[i]);
}

constexpr std::size_t kOperators = std::variant_size_v<ops::Op>;

template <std::size_t... Index>
std::array<std::string_view, kOperators> operator_names(std::index_sequence<Index...>) {
  return {std::variant_alternative_t<Index, ops::Op>::kName...};
}

// Owns the kernels' names, which the table only views.
struct Rows {
  std::array<std::string, kOperators> names;
  std::array<Kernel, kOperators> kernels;

  Rows() {
    const auto ops_in_order = operator_names(std::make_index_sequence<kOperators>());
    for (std::size_t i = 0; i < kOperators; ++i) {
      names[i] = std::string(ops_in_order[i]) + ".reference";
      kernels[i] = {.op = ops_in_order[i], .name = names[i], .run = run};
    }
  }
};

}  // namespace

}  // namespace reference

std::span<const Kernel> reference_kernels() {
  static const reference::Rows rows;
  return rows.kernels;
}

}  // namespace plimsoll::kernels::cpu
