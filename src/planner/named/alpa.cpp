// The inter-operator pass of Alpa (Zheng and others, OSDI 2022): stages on sub-meshes of (1, 2^i) devices or of whole nodes, and for every
// bound on the slowest stage the least sum of all stages,
//
//   F(s, k, D) = min over i and sub-meshes of t(k..i, mesh, s) + F(s-1, i, D - devices), t <= t_max,
//   T = min over s, t_max of F(s, 0, all) + (B - 1) t_max.
//
// A stage that is the s-th from the end holds s micro-batches. Inside a sub-mesh, the faster of all data x tensor divisions that fit.
#include <algorithm>
#include <set>

#include "planner/named/chain.h"
#include "planner/named/stage_costs.h"

namespace plimsoll::planner::named {

namespace {

constexpr std::size_t kTriedExactly = 8;

struct Choice {
  double seconds = kNever;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
};

class Meshes {
 public:
  explicit Meshes(const Chain& chain) : chain_(chain) {
    for (const std::int64_t tensor : chain.tensor_degrees) costs_.emplace_back(chain, tensor);
    for (std::int64_t size = 1; size < chain.devices_per_node; size *= 2) sizes_.push_back(size);
    for (std::int64_t size = chain.devices_per_node; size <= chain.devices; size += chain.devices_per_node) sizes_.push_back(size);
  }

  const std::vector<std::int64_t>& sizes() const { return sizes_; }

  // A micro-batch of layers [first, last) on `devices`, as the `behind`-th stage from the end.
  Choice best(std::size_t first, std::size_t last, std::int64_t devices, std::int64_t behind) const {
    Choice best;
    for (std::size_t degree = 0; degree < costs_.size(); ++degree) {
      const std::int64_t tensor = chain_.tensor_degrees[degree];
      if (devices % tensor != 0) continue;
      const std::int64_t data = devices / tensor;
      const StageCosts& costs = costs_[degree];
      if (costs.states(first, last) + behind * (costs.kept(first, last, false) / data) > chain_.device.count) continue;
      const auto replicas = static_cast<double>(data);
      const double exchange = 2.0 * (replicas - 1.0) / replicas * static_cast<double>(costs.weights(first, last)) /
                              chain_.bandwidth(devices) / static_cast<double>(chain_.micro_batches);
      double seconds = costs.seconds(first, last) / replicas + exchange;
      if (last < chain_.size()) seconds += 2.0 * static_cast<double>(costs.output(last - 1)) / replicas / chain_.bandwidth(chain_.devices);
      if (seconds < best.seconds) best = {.seconds = seconds, .data = data, .tensor = tensor};
    }
    return best;
  }

 private:
  const Chain& chain_;
  std::vector<StageCosts> costs_;
  std::vector<std::int64_t> sizes_;
};

class AlpaProgram {
 public:
  explicit AlpaProgram(const Chain& chain) : chain_(chain), meshes_(chain), most_(static_cast<std::int64_t>(chain.size())) {
    const std::size_t layers = chain.size();
    table_.resize(static_cast<std::size_t>(most_ + 1) * layers * (layers + 1) * meshes_.sizes().size());
    for (std::int64_t behind = 1; behind <= most_; ++behind) {
      for (std::size_t first = 0; first < layers; ++first) {
        for (std::size_t last = first + 1; last <= layers; ++last) {
          for (std::size_t mesh = 0; mesh < meshes_.sizes().size(); ++mesh)
            stage(behind, first, last, mesh) = meshes_.best(first, last, meshes_.sizes()[mesh], behind);
        }
      }
    }
  }

  Answer run() {
    std::set<double> bounds;
    for (const Choice& choice : table_) {
      if (choice.seconds < kNever) bounds.insert(choice.seconds);
    }
    Answer best;
    const auto batch = static_cast<double>(chain_.micro_batches);
    double tried = 0.0;
    for (const double bound : bounds) {
      if (batch * bound >= best.objective) break;
      if (bound < tried * (1.0 + gap())) continue;
      tried = bound;
      fill(bound);
      for (std::int64_t stages = 1; stages <= most_; ++stages) {
        const double seconds = at(stages, 0, chain_.devices).seconds + (batch - 1.0) * bound;
        if (seconds < best.objective) best = {.stages = collect(stages), .objective = seconds};
      }
    }
    return best;
  }

 private:
  struct Cell {
    double seconds = kNever;
    std::size_t last = 0;
    std::size_t mesh = 0;
  };

  // Bounds on the slowest stage that lie close together are not all tried on long chains.
  double gap() const { return chain_.size() > kTriedExactly ? 0.01 : 0.0; }

  Choice& stage(std::int64_t behind, std::size_t first, std::size_t last, std::size_t mesh) {
    const std::size_t layers = chain_.size();
    return table_[((static_cast<std::size_t>(behind) * layers + first) * (layers + 1) + last) * meshes_.sizes().size() + mesh];
  }
  Cell& at(std::int64_t stages, std::size_t first, std::int64_t devices) {
    const auto side = static_cast<std::size_t>(chain_.devices + 1);
    return cells_[(static_cast<std::size_t>(stages) * (chain_.size() + 1) + first) * side + static_cast<std::size_t>(devices)];
  }

  void fill(double bound) {
    cells_.assign(static_cast<std::size_t>(most_ + 1) * (chain_.size() + 1) * static_cast<std::size_t>(chain_.devices + 1), {});
    at(0, chain_.size(), 0).seconds = 0.0;
    for (std::int64_t stages = 1; stages <= most_; ++stages) {
      for (std::size_t first = 0; first < chain_.size(); ++first) {
        for (std::int64_t devices = 1; devices <= chain_.devices; ++devices)
          at(stages, first, devices) = best(stages, first, devices, bound);
      }
    }
  }

  Cell best(std::int64_t stages, std::size_t first, std::int64_t devices, double bound) {
    Cell cell;
    for (std::size_t mesh = 0; mesh < meshes_.sizes().size() && meshes_.sizes()[mesh] <= devices; ++mesh) {
      for (std::size_t last = first + 1; last <= chain_.size(); ++last) {
        const double own = stage(stages, first, last, mesh).seconds;
        if (own > bound) continue;
        const double seconds = own + at(stages - 1, last, devices - meshes_.sizes()[mesh]).seconds;
        if (seconds < cell.seconds) cell = {seconds, last, mesh};
      }
    }
    return cell;
  }

  std::vector<Stage> collect(std::int64_t stages) {
    std::vector<Stage> list;
    std::int64_t devices = chain_.devices;
    for (std::size_t first = 0; first < chain_.size(); --stages) {
      const Cell& cell = at(stages, first, devices);
      const Choice& choice = stage(stages, first, cell.last, cell.mesh);
      list.push_back({.first = first, .last = cell.last, .data = choice.data, .tensor = choice.tensor});
      devices -= meshes_.sizes()[cell.mesh];
      first = cell.last;
    }
    return list;
  }

  const Chain& chain_;
  Meshes meshes_;
  std::int64_t most_;
  std::vector<Choice> table_;
  std::vector<Cell> cells_;
};

// Every list of stages, from the end; `behind` of them so far.
void extend(const Chain& chain, const Meshes& meshes, std::size_t last, std::int64_t devices, std::int64_t behind, double sum,
            double slowest, double& least) {
  if (last == 0) {
    if (devices == 0) least = std::min(least, sum + (static_cast<double>(chain.micro_batches) - 1.0) * slowest);
    return;
  }
  for (std::size_t first = 0; first < last; ++first) {
    for (const std::int64_t size : meshes.sizes()) {
      if (size > devices) break;
      const double seconds = meshes.best(first, last, size, behind + 1).seconds;
      if (seconds < kNever) extend(chain, meshes, first, devices - size, behind + 1, sum + seconds, std::max(slowest, seconds), least);
    }
  }
}

}  // namespace

Answer alpa_inter(const Chain& chain) { return AlpaProgram(chain).run(); }

Answer brute_alpa_inter(const Chain& chain) {
  Answer answer;
  extend(chain, Meshes(chain), chain.size(), chain.devices, 0, 0.0, 0.0, answer.objective);
  return answer;
}

}  // namespace plimsoll::planner::named
