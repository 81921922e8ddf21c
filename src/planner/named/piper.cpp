// Piper (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021) on a chain, where what is closed under successors is a suffix:
//
//   dp[i][k][S] = min over j, t, d with t d <= k, d | N of max(dp[j][k - t d][S - d], TPS(i..j, t, d, S))
//
// is the least time for a sample of layers i.. on at most k devices whose data degrees sum to at most S. A stage with d replicas holds
// ceil(S / d) micro-batches. Inside a stage each layer is kept or made again: all kept if that fits, nothing if all made again does not,
// else layers are made again in the order of seconds for each byte saved, until it fits (the paper's heuristic for the knapsack).
#include <algorithm>
#include <numeric>

#include "planner/named/chain.h"
#include "planner/named/stage_costs.h"
#include "planner/space.h"

namespace plimsoll::planner::named {

namespace {

struct Inner {
  double seconds = kNever;  // between two micro-batches
  bool again = false;       // some layer is made again
};

class Stages {
 public:
  explicit Stages(const Chain& chain) : chain_(chain) {
    for (const std::int64_t tensor : chain.tensor_degrees) costs_.emplace_back(chain, tensor);
  }

  Inner cost(std::size_t first, std::size_t last, std::size_t degree, std::int64_t data, std::int64_t sum) const {
    const StageCosts& costs = costs_[degree];
    const std::int64_t tensor = chain_.tensor_degrees[degree];
    const std::int64_t in_flight = (sum + data - 1) / data;
    const std::int64_t states = costs.states(first, last);
    Inner inner{.seconds = costs.seconds(first, last)};
    std::int64_t over = states + in_flight * costs.kept(first, last, false) - chain_.device.count;
    if (over > 0) {
      if (states + in_flight * costs.kept(first, last, true) > chain_.device.count) return {};
      inner.again = true;
      for (const std::size_t layer : by_price(degree, first, last)) {
        const Layer& made = chain_.layers[degree][layer];
        over -= in_flight * (made.kept - made.kept_again);
        inner.seconds += made.again;
        if (over <= 0) break;
      }
    }
    const double rate = chain_.bandwidth(chain_.devices);
    double moved = 0.0;
    if (first > 0) moved += 2.0 * static_cast<double>(costs.output(first - 1));
    if (last < chain_.size()) moved += 2.0 * static_cast<double>(costs.output(last - 1));
    const auto replicas = static_cast<double>(data);
    const double exchange = 4.0 * (replicas - 1.0) * static_cast<double>(costs.weights(first, last)) /
                            (replicas * static_cast<double>(chain_.micro_batches)) / chain_.bandwidth(tensor * data);
    inner.seconds = (inner.seconds + moved / rate) / replicas + exchange;
    return inner;
  }

 private:
  std::vector<std::size_t> by_price(std::size_t degree, std::size_t first, std::size_t last) const {
    std::vector<std::size_t> order(last - first);
    std::iota(order.begin(), order.end(), first);
    const auto price = [&](std::size_t layer) {
      const Layer& made = chain_.layers[degree][layer];
      return made.again / std::max(1.0, static_cast<double>(made.kept - made.kept_again));
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return price(a) < price(b); });
    return order;
  }

  const Chain& chain_;
  std::vector<StageCosts> costs_;
};

class PiperProgram {
 public:
  explicit PiperProgram(const Chain& chain) : chain_(chain), stages_(chain), replicas_(divisors(chain.micro_batches)) {
    std::erase_if(replicas_, [&](std::int64_t data) { return data > chain.devices; });
  }

  Answer run() {
    const std::size_t layers = chain_.size();
    const auto side = static_cast<std::size_t>(chain_.devices + 1);
    cells_.assign((layers + 1) * side * side, {});
    for (std::size_t cell = 0; cell < side * side; ++cell) cells_[layers * side * side + cell].seconds = 0.0;
    for (std::size_t first = layers; first-- > 0;) {
      for (std::int64_t sum = 1; sum <= chain_.devices; ++sum) fill(first, sum);
    }
    Answer answer;
    std::int64_t best = 0;
    for (std::int64_t sum = 1; sum <= chain_.devices; ++sum) {
      if (at(0, chain_.devices, sum).seconds >= answer.objective) continue;
      answer.objective = at(0, chain_.devices, sum).seconds;
      best = sum;
    }
    if (best > 0) collect(best, answer.stages);
    return answer;
  }

 private:
  struct Cell {
    double seconds = kNever;
    Stage stage;
  };
  Cell& at(std::size_t first, std::int64_t devices, std::int64_t sum) {
    const auto side = static_cast<std::size_t>(chain_.devices + 1);
    return cells_[(first * side + static_cast<std::size_t>(devices)) * side + static_cast<std::size_t>(sum)];
  }

  void fill(std::size_t first, std::int64_t sum) {
    for (std::size_t last = first + 1; last <= chain_.size(); ++last) {
      for (std::size_t degree = 0; degree < chain_.tensor_degrees.size(); ++degree) {
        for (const std::int64_t data : replicas_) {
          if (data > sum) break;
          const std::int64_t taken = data * chain_.tensor_degrees[degree];
          if (taken > chain_.devices) break;
          const Inner inner = stages_.cost(first, last, degree, data, sum);
          if (inner.seconds == kNever) continue;
          for (std::int64_t devices = taken; devices <= chain_.devices; ++devices) {
            const double seconds = std::max(at(last, devices - taken, sum - data).seconds, inner.seconds);
            Cell& cell = at(first, devices, sum);
            if (seconds < cell.seconds)
              cell = {seconds, {.first = first, .last = last, .data = data, .tensor = chain_.tensor_degrees[degree], .again = inner.again}};
          }
        }
      }
    }
  }

  void collect(std::int64_t sum, std::vector<Stage>& stages) {
    std::int64_t devices = chain_.devices;
    for (std::size_t first = 0; first < chain_.size();) {
      const Stage& stage = at(first, devices, sum).stage;
      stages.push_back(stage);
      devices -= stage.data * stage.tensor;
      sum -= stage.data;
      first = stage.last;
    }
  }

  const Chain& chain_;
  Stages stages_;
  std::vector<std::int64_t> replicas_;
  std::vector<Cell> cells_;
};

// Every list of stages, from the last layer to the first, since what a stage holds depends on those behind it.
void extend(const Chain& chain, const Stages& costs, std::size_t last, std::int64_t devices, std::int64_t sum, double so_far,
            double& least) {
  if (last == 0) {
    least = std::min(least, so_far);
    return;
  }
  for (std::size_t first = 0; first < last; ++first) {
    for (std::size_t degree = 0; degree < chain.tensor_degrees.size(); ++degree) {
      for (std::int64_t data = 1; data * chain.tensor_degrees[degree] <= devices; ++data) {
        if (chain.micro_batches % data != 0) continue;
        const double seconds = costs.cost(first, last, degree, data, sum + data).seconds;
        if (seconds < kNever)
          extend(chain, costs, first, devices - data * chain.tensor_degrees[degree], sum + data, std::max(so_far, seconds), least);
      }
    }
  }
}

}  // namespace

Answer piper(const Chain& chain) { return PiperProgram(chain).run(); }

Answer brute_piper(const Chain& chain) {
  Answer answer;
  extend(chain, Stages(chain), chain.size(), chain.devices, 0, 0.0, answer.objective);
  return answer;
}

}  // namespace plimsoll::planner::named
