// What a micro-batch's passes take where only so much memory is left for activations: the fastest way through the chain of blocks, with
// what is kept, made again and, where there is a link for it, sent away chosen together (solvers/rotor.h, solvers/pofo.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "planner/prices.h"
#include "solvers/chain.h"
#include "solvers/rotor.h"

namespace plimsoll::planner {

class Residency {
 public:
  // `counts_gradients`: those of weights begin where activations end, and share their memory.
  Residency(const Prices& prices, std::int64_t layers, bool counts_gradients);

  struct Way {
    double again = 0.0;      // seconds more than where everything is kept: made again, and waited for the link
    std::int64_t bytes = 0;  // on the device at the most
    std::int64_t away = 0;   // bytes that leave
  };
  // nullopt: nothing fits. `link`: bytes a second to and from a slower tier; zero: nothing leaves.
  std::optional<Way> within(std::int64_t bytes, double link) const;

  std::int64_t least() const;  // bytes for which a way is found without a link

 private:
  const solvers::RotorTable& table() const;

  solvers::Chain chain_;
  solvers::RotorOptions options_;
  double kept_seconds_ = 0.0;
  std::int64_t kept_bytes_ = 0;
  mutable std::unique_ptr<solvers::RotorTable> table_;  // made when it is first asked for
};

}  // namespace plimsoll::planner
