// FlexFlow's search (Jia, Zaharia, Aiken, MLSys 2019), with placements per block on one mesh: every block of the chain has its own division
// of all devices into data x tensor, and what two neighbours divide differently is moved between them. A walk proposes one block's division
// at a time and takes it with probability min(1, exp(beta (cost - new cost))); only what the block touches is counted again. It ends when
// half of its steps brought no gain.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "planner/named/chain.h"

namespace plimsoll::planner::named {

namespace {

constexpr std::int64_t kStepsPerPlacement = 400;
// At the start, one in e proposals that cost a twentieth more is taken.
constexpr double kBeta = 20.0;

class Mesh {
 public:
  explicit Mesh(const Chain& chain) : chain_(chain) {
    for (const std::int64_t tensor : chain.tensor_degrees) {
      const std::int64_t data = chain.devices / tensor;
      if (chain.devices % tensor == 0 && chain.micro_batches % data == 0) placements_.push_back({data, tensor});
    }
  }

  struct Placement {
    std::int64_t data = 1;
    std::int64_t tensor = 1;
  };
  const std::vector<Placement>& placements() const { return placements_; }
  using State = std::vector<std::size_t>;  // of each block, which of the placements

  // A block's own part of a batch: its computing and the exchange of its gradients.
  double own(std::size_t block, std::size_t placement) const {
    const Placement& at = placements_[placement];
    const Layer& layer = chain_.at(at.tensor)[block];
    const auto replicas = static_cast<double>(at.data);
    return layer.seconds * static_cast<double>(chain_.micro_batches) / replicas +
           2.0 * (replicas - 1.0) / replicas * static_cast<double>(layer.weights) / chain_.bandwidth(at.data * at.tensor);
  }

  // Between a block and the next: every device gives and gets its share, forward and backward.
  double between(std::size_t block, std::size_t placement, std::size_t next) const {
    if (placement == next) return 0.0;
    const double bytes = static_cast<double>(chain_.layers.front()[block].output) * static_cast<double>(chain_.micro_batches);
    return 2.0 * bytes / static_cast<double>(chain_.devices) / chain_.bandwidth(chain_.devices);
  }

  std::int64_t bytes(std::size_t block, std::size_t placement) const {
    const Layer& layer = chain_.at(placements_[placement].tensor)[block];
    return layer.states + layer.kept;
  }

  // What one block and its two borders cost.
  double around(const State& state, std::size_t block) const {
    double sum = own(block, state[block]);
    if (block > 0) sum += between(block - 1, state[block - 1], state[block]);
    if (block + 1 < state.size()) sum += between(block, state[block], state[block + 1]);
    return sum;
  }

  double whole(const State& state) const {
    double sum = 0.0;
    std::int64_t held = 0;
    for (std::size_t block = 0; block < state.size(); ++block) {
      sum += own(block, state[block]);
      if (block + 1 < state.size()) sum += between(block, state[block], state[block + 1]);
      held += bytes(block, state[block]);
    }
    return held <= chain_.device.count ? sum : kNever;
  }

  std::vector<Stage> stages_of(const State& state) const {
    std::vector<Stage> stages;
    for (std::size_t block = 0; block < state.size(); ++block) {
      const Placement& at = placements_[state[block]];
      if (!stages.empty() && stages.back().data == at.data && stages.back().tensor == at.tensor) {
        stages.back().last = block + 1;
      } else {
        stages.push_back({.first = block, .last = block + 1, .data = at.data, .tensor = at.tensor});
      }
    }
    return stages;
  }

 private:
  const Chain& chain_;
  std::vector<Placement> placements_;
};

// Each block where it holds least.
Mesh::State leanest(const Mesh& mesh, std::size_t blocks) {
  Mesh::State state(blocks, 0);
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t placement = 1; placement < mesh.placements().size(); ++placement) {
      if (mesh.bytes(block, placement) < mesh.bytes(block, state[block])) state[block] = placement;
    }
  }
  return state;
}

}  // namespace

namespace {

// One walk.
class Walk {
 public:
  Walk(const Chain& chain, const Mesh& mesh, Mesh::State state, base::RandomKey key)
      : chain_(chain), mesh_(mesh), state_(std::move(state)), best_(state_), key_(key) {
    for (std::size_t block = 0; block < state_.size(); ++block) held_ += mesh.bytes(block, state_[block]);
    cost_ = least_ = mesh.whole(state_);
  }

  Mesh::State run() {
    const std::int64_t steps = kStepsPerPlacement * static_cast<std::int64_t>(state_.size() * mesh_.placements().size());
    const double beta = kBeta / cost_;
    for (std::int64_t step = 0, gained = 0; step < steps && step - gained <= steps / 2; ++step) {
      propose(base::philox({static_cast<std::uint32_t>(step), 0, 0, 0}, key_), beta);
      if (cost_ >= least_ * (1.0 - 1e-9)) continue;
      least_ = cost_;
      best_ = state_;
      gained = step;
    }
    return best_;
  }

 private:
  void propose(const base::RandomBlock& drawn, double beta) {
    const std::size_t block = drawn[0] % state_.size();
    const std::size_t placement = drawn[1] % mesh_.placements().size();
    const std::size_t before = state_[block];
    const std::int64_t holds = held_ - mesh_.bytes(block, before) + mesh_.bytes(block, placement);
    if (holds > chain_.device.count) return;
    const double old = mesh_.around(state_, block);
    state_[block] = placement;
    const double change = mesh_.around(state_, block) - old;
    if (change > 0.0 && static_cast<double>(drawn[2]) / 4294967296.0 >= std::exp(-beta * change)) {
      state_[block] = before;
      return;
    }
    held_ = holds;
    cost_ += change;
  }

  const Chain& chain_;
  const Mesh& mesh_;
  Mesh::State state_;
  Mesh::State best_;
  base::RandomKey key_;
  std::int64_t held_ = 0;
  double cost_ = 0.0;
  double least_ = 0.0;
};

}  // namespace

Answer flexflow(const Chain& chain, std::uint64_t seed) {
  const Mesh mesh(chain);
  Answer best;
  if (mesh.placements().empty()) return best;
  // From several beginnings, as the paper does: the leanest, and all blocks alike.
  std::vector<Mesh::State> starts{leanest(mesh, chain.size())};
  for (std::size_t placement = 0; placement < mesh.placements().size(); ++placement) starts.emplace_back(chain.size(), placement);
  for (std::size_t start = 0; start < starts.size(); ++start) {
    if (mesh.whole(starts[start]) == kNever) continue;
    const Mesh::State found = Walk(chain, mesh, starts[start], base::random_key(seed, start)).run();
    const double cost = mesh.whole(found);
    if (cost < best.objective) best = {.stages = mesh.stages_of(found), .objective = cost};
  }
  return best;
}

Answer brute_flexflow(const Chain& chain) {
  const Mesh mesh(chain);
  Answer best;
  if (mesh.placements().empty()) return best;
  Mesh::State state(chain.size(), 0);
  for (bool more = true; more;) {
    const double cost = mesh.whole(state);
    if (cost < best.objective) best = {.stages = mesh.stages_of(state), .objective = cost};
    more = false;
    for (std::size_t& placement : state) {
      if (++placement < mesh.placements().size()) {
        more = true;
        break;
      }
      placement = 0;
    }
  }
  return best;
}

}  // namespace plimsoll::planner::named
