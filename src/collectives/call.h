// What a rank asks of its group, as plain data: the same words serve the check that all members ask for the same thing,
// the messages that name a rank, and the record of what was done last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace plimsoll::collectives {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, barrier, send, receive };

enum class Reduction : std::uint8_t { sum, mean, max };

std::string_view name_of(Operation operation);
std::string_view name_of(Reduction reduction);

// Laid out so that it can lie in memory shared by processes.
struct Call {
  std::uint64_t sequence = 0;  // of the group's calls, from 1; sends and receives are not counted
  std::int64_t count = 0;      // elements of the whole tensor, not of a member's part
  std::int32_t other = -1;     // the root, or a message's peer, as a position in the group
  std::int32_t tag = 0;        // of a message
  Operation operation = Operation::barrier;
  base::DType dtype = base::DType::u8;
  Reduction reduction = Reduction::sum;

  std::int64_t bytes() const;
  // Whether two members ask for the same: everything but what a message alone has.
  bool same_as(const Call& other_call) const;
};

// "all_reduce #17 (sum, f32, 16,384 bytes)"
std::string to_text(const Call& call);

}  // namespace plimsoll::collectives
