// The fastest order of a chain within a given memory: the dynamic programme of Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly,
// Shilova: "Optimal checkpointing for heterogeneous chains"), with two additions: a stage may be kept in one of several
// forms, and a stage's input may be dropped while its form is kept, to be made again before its backward pass.
//
// With L stages the work grows as L^3 times the number of memory slots, or as L^2 times that where stages are equal: 100 stages take
// well under a second.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "solvers/chain.h"

namespace plimsoll::solvers {

struct RotorOptions {
  std::int32_t slots = 500;  // memory is counted in this many parts; sizes are rounded up to whole ones
  bool drops_inputs = true;  // the second addition; off: the published programme
};

// What the programme found for every run of stages, for who builds on it. The chain must outlive it.
class RotorTable {
 public:
  RotorTable(const Chain& chain, std::int64_t memory, const RotorOptions& options = {});
  ~RotorTable();
  RotorTable(const RotorTable&) = delete;
  RotorTable& operator=(const RotorTable&) = delete;

  // Whether fastest_order finds one: without the table, hundreds of times faster.
  static bool fits(const Chain& chain, std::int64_t memory, const RotorOptions& options = {});

  // The least time to go through first..last forward and back, from the input of `first` and the gradient of the output of `last`,
  // with `free` bytes beside the chain's and the run's input; infinity where that does not fit.
  double time(std::size_t first, std::size_t last, std::int64_t free) const;
  ChainOrder order(std::size_t first, std::size_t last, std::int64_t free) const;

 private:
  class Programme;
  std::unique_ptr<Programme> programme_;
};

// nullopt: no order fits. What comes back fits to the byte: replay(chain, order).peak <= memory.
std::optional<ChainOrder> fastest_order(const Chain& chain, std::int64_t memory, const RotorOptions& options = {});

// The least memory for which fastest_order finds one, to one part in `slots`.
std::int64_t least_memory(const Chain& chain, const RotorOptions& options = {});

}  // namespace plimsoll::solvers
