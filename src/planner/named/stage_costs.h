// Sums over stretches of a chain, each in constant time.
#pragma once

#include <vector>

#include "planner/named/chain.h"

namespace plimsoll::planner::named {

class StageCosts {
 public:
  StageCosts(const Chain& chain, std::int64_t tensor) : layers_(chain.at(tensor)) {
    Sums sum;
    sums_.push_back(sum);
    for (const Layer& layer : layers_) {
      sum.seconds += layer.seconds;
      sum.again += layer.again;
      sum.weights += layer.weights;
      sum.states += layer.states;
      sum.version += layer.version;
      sum.kept += layer.kept;
      sum.kept_again += layer.kept_again;
      sums_.push_back(sum);
    }
  }

  double seconds(std::size_t first, std::size_t last) const { return sums_[last].seconds - sums_[first].seconds; }
  double again(std::size_t first, std::size_t last) const { return sums_[last].again - sums_[first].again; }
  std::int64_t weights(std::size_t first, std::size_t last) const { return sums_[last].weights - sums_[first].weights; }
  std::int64_t states(std::size_t first, std::size_t last) const { return sums_[last].states - sums_[first].states; }
  std::int64_t version(std::size_t first, std::size_t last) const { return sums_[last].version - sums_[first].version; }
  std::int64_t kept(std::size_t first, std::size_t last, bool made_again) const {
    return made_again ? sums_[last].kept_again - sums_[first].kept_again : sums_[last].kept - sums_[first].kept;
  }
  std::int64_t output(std::size_t layer) const { return layers_[layer].output; }

 private:
  struct Sums {
    double seconds = 0.0;
    double again = 0.0;
    std::int64_t weights = 0;
    std::int64_t states = 0;
    std::int64_t version = 0;
    std::int64_t kept = 0;
    std::int64_t kept_again = 0;
  };
  const std::vector<Layer>& layers_;
  std::vector<Sums> sums_;
};

}  // namespace plimsoll::planner::named
