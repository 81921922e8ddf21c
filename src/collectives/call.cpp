#include "collectives/call.h"

#include <array>

#include <fmt/format.h>

namespace plimsoll::collectives {

std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, 9> kNames{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                                   "all_to_all", "barrier",        "send",       "receive"};
  const auto index = static_cast<std::size_t>(operation);
  return index < kNames.size() ? kNames[index] : "unknown operation";
}

std::string_view name_of(Reduction reduction) {
  constexpr std::array<std::string_view, 3> kNames{"sum", "mean", "max"};
  const auto index = static_cast<std::size_t>(reduction);
  return index < kNames.size() ? kNames[index] : "unknown reduction";
}

std::int64_t Call::bytes() const { return count * base::size_of(dtype); }

bool Call::same_as(const Call& other_call) const {
  return sequence == other_call.sequence && operation == other_call.operation && dtype == other_call.dtype && count == other_call.count &&
         reduction == other_call.reduction && other == other_call.other;
}

namespace {

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter || operation == Operation::reduce;
}

}  // namespace

std::string to_text(const Call& call) {
  if (call.sequence == 0 && call.operation == Operation::barrier) return "nothing yet";
  if (call.operation == Operation::barrier) return fmt::format("barrier #{}", call.sequence);
  const std::string data = fmt::format("{}, {} bytes", base::name_of(call.dtype), call.bytes());
  if (call.operation == Operation::send) return fmt::format("send (to member {}, tag {}, {})", call.other, call.tag, data);
  if (call.operation == Operation::receive) return fmt::format("receive (from member {}, tag {}, {})", call.other, call.tag, data);
  const std::string root = call.other >= 0 ? fmt::format("root {}, ", call.other) : "";
  const std::string reduction = reduces(call.operation) ? fmt::format("{}, ", name_of(call.reduction)) : "";
  return fmt::format("{} #{} ({}{}{})", name_of(call.operation), call.sequence, root, reduction, data);
}

}  // namespace plimsoll::collectives
