// What every transport must do, as code that one rank runs: each operation for every element type, length, way of sharing and root,
// compared bit for bit with a fold written out plainly here. All ranks know all inputs, so each checks its own result.
//
// The digest covers every result: equal digests on two transports are equal bits.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/transport.h"

namespace plimsoll::collectives::tests {

struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CaseOptions {
  std::vector<std::int64_t> lengths{0, 1, 7, 1025, 2500};  // elements
  std::uint64_t seed = 1;
};

std::uint64_t run_cases(Transport& transport, const CaseOptions& options);
// `calls` random operations of random lengths below `below` on the whole world and on random sub-groups.
std::uint64_t run_random(Transport& transport, int calls, std::uint64_t seed, std::uint64_t below = 3000);
// Messages: tags out of order, rings, a pipeline whose sends run ahead.
void run_messages(Transport& transport);

std::vector<std::byte> input_of(int rank, std::int64_t count, base::DType dtype, std::uint64_t seed);
std::vector<std::byte> plain_fold(const std::vector<std::vector<std::byte>>& inputs, base::DType dtype, Reduction reduction);

}  // namespace plimsoll::collectives::tests
