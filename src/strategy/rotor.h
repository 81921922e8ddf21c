// The fastest order of a chain within a given memory: the dynamic programme of Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly,
// Shilova: "Optimal checkpointing for heterogeneous chains"), with two additions: a stage may be kept in one of several
// forms, and a stage's input may be dropped while its form is kept, to be made again before its backward pass.
//
// With L stages the work grows as L^3 times the number of memory slots; 100 stages take well under a second.
#pragma once

#include <cstdint>
#include <optional>

#include "strategy/chain.h"

namespace plimsoll::strategy {

struct RotorOptions {
  std::int32_t slots = 500;  // memory is counted in this many parts; sizes are rounded up to whole ones
  bool drops_inputs = true;  // the second addition; off: the published programme
};

// nullopt: no order fits. What comes back fits to the byte: replay(chain, order).peak <= memory.
std::optional<ChainOrder> fastest_order(const Chain& chain, std::int64_t memory, const RotorOptions& options = {});

// The least memory for which fastest_order finds one, to one part in `slots`.
std::int64_t least_memory(const Chain& chain, const RotorOptions& options = {});

}  // namespace plimsoll::strategy
