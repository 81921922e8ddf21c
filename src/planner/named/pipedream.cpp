// PipeDream's partitioner (Narayanan and others, SOSP 2019), the form of the paper: over the levels of a machine's hierarchy,
//
//   A0(i..j)    = sum of T
//   Tk(i..j, m) = 1/m max(A[k-1](i..j, m[k-1]), 2 (m-1) sum of w / B[k])
//   Ak(i..j, m) = min(Tk(i..j, m), min over q, m' of max(Ak(i..q, m-m'), 2 a[q] / B[k], Tk(q+1..j, m')))
//
// for stages that are replicated whole, without tensor ranks; what it minimises is the time between two micro-batches.
#include <algorithm>
#include <limits>

#include "planner/named/chain.h"
#include "planner/named/stage_costs.h"

namespace plimsoll::planner::named {

namespace {

struct Level {
  double bandwidth = 1.0;
  std::int64_t count = 1;  // components of the level below
};

std::vector<Level> levels_of(const Chain& chain) {
  std::vector<Level> levels;
  if (chain.devices_per_node > 1) levels.push_back({chain.inside, chain.devices_per_node});
  if (chain.devices > chain.devices_per_node) levels.push_back({chain.across, chain.devices / chain.devices_per_node});
  if (levels.empty()) levels.push_back({chain.inside, 1});
  return levels;
}

class Partitioner {
 public:
  explicit Partitioner(const Chain& chain) : costs_(chain, 1), layers_(chain.size()), levels_(levels_of(chain)) {
    for (std::size_t level = 0; level < levels_.size(); ++level) fill(level);
  }

  Answer answer() const {
    Answer answer;
    answer.objective = at(levels_.size() - 1, 0, layers_, levels_.back().count).seconds;
    collect(levels_.size() - 1, 0, layers_, levels_.back().count, 1, answer.stages);
    return answer;
  }

 private:
  struct Cell {
    double seconds = kNever;
    std::size_t cut = 0;        // where the last stage begins; 0: one stage of all
    std::int64_t replicas = 0;  // of the last stage
  };

  std::size_t index(std::size_t level, std::size_t first, std::size_t last, std::int64_t count) const {
    return ((first * (layers_ + 1) + last) * static_cast<std::size_t>(levels_[level].count + 1)) + static_cast<std::size_t>(count);
  }
  const Cell& at(std::size_t level, std::size_t first, std::size_t last, std::int64_t count) const {
    return cells_[level][index(level, first, last, count)];
  }

  // Layers [first, last) on one component of the level below.
  double below(std::size_t level, std::size_t first, std::size_t last) const {
    return level == 0 ? costs_.seconds(first, last) : at(level - 1, first, last, levels_[level - 1].count).seconds;
  }

  // Replicated over `count` components as one stage.
  double replicated(std::size_t level, std::size_t first, std::size_t last, std::int64_t count) const {
    const double exchange =
        2.0 * static_cast<double>(count - 1) * static_cast<double>(costs_.weights(first, last)) / levels_[level].bandwidth;
    return std::max(below(level, first, last), exchange) / static_cast<double>(count);
  }

  void fill(std::size_t level) {
    cells_.emplace_back((layers_ + 1) * (layers_ + 1) * static_cast<std::size_t>(levels_[level].count + 1));
    for (std::size_t length = 1; length <= layers_; ++length) {
      // Stretches are cut from their beginning, so at the top only those from the first layer are asked for.
      const std::size_t beginnings = level + 1 == levels_.size() ? 1 : layers_ - length + 1;
      for (std::size_t first = 0; first < beginnings; ++first) {
        for (std::int64_t count = 1; count <= levels_[level].count; ++count) {
          cells_[level][index(level, first, first + length, count)] = best(level, first, first + length, count);
        }
      }
    }
  }

  Cell best(std::size_t level, std::size_t first, std::size_t last, std::int64_t count) const {
    Cell best{replicated(level, first, last, count), first, count};
    for (std::size_t cut = first + 1; cut < last; ++cut) {
      const double moved = 2.0 * static_cast<double>(costs_.output(cut - 1)) / levels_[level].bandwidth;
      for (std::int64_t replicas = 1; replicas < count; ++replicas) {
        const double seconds = std::max({at(level, first, cut, count - replicas).seconds, moved, replicated(level, cut, last, replicas)});
        if (seconds < best.seconds) best = {seconds, cut, replicas};
      }
    }
    return best;
  }

  // `outer`: replicas that the levels above make of this stretch.
  void collect(std::size_t level, std::size_t first, std::size_t last, std::int64_t count, std::int64_t outer,
               std::vector<Stage>& stages) const {
    const Cell& cell = at(level, first, last, count);
    if (cell.cut > first) collect(level, first, cell.cut, count - cell.replicas, outer, stages);
    const std::size_t begin = cell.cut;
    const std::int64_t replicas = cell.replicas * outer;
    if (level == 0) {
      stages.push_back({.first = begin, .last = last, .data = replicas, .tensor = 1});
    } else {
      collect(level - 1, begin, last, levels_[level - 1].count, replicas, stages);
    }
  }

  StageCosts costs_;
  std::size_t layers_;
  std::vector<Level> levels_;
  std::vector<std::vector<Cell>> cells_;
};

// Every list of stages on one level, each stage with the best of all lists on the level below.
class Brute {
 public:
  explicit Brute(const Chain& chain) : costs_(chain, 1), levels_(levels_of(chain)) {}

  double best(std::size_t level, std::size_t first, std::size_t last, std::int64_t count) const {
    double least = kNever;
    extend(level, first, last, count, 0.0, least);
    return least;
  }

 private:
  // Goes on with the next stage, which begins at `first`; `so_far` is the slowest of those before.
  void extend(std::size_t level, std::size_t first, std::size_t last, std::int64_t count, double so_far, double& least) const {
    for (std::size_t cut = first + 1; cut <= last; ++cut) {
      for (std::int64_t replicas = 1; replicas <= count; ++replicas) {
        if (cut == last && replicas != count) continue;
        const double inner = level == 0 ? costs_.seconds(first, cut) : best(level - 1, first, cut, levels_[level - 1].count);
        const double exchange =
            2.0 * static_cast<double>(replicas - 1) * static_cast<double>(costs_.weights(first, cut)) / levels_[level].bandwidth;
        const double moved = cut == last ? 0.0 : 2.0 * static_cast<double>(costs_.output(cut - 1)) / levels_[level].bandwidth;
        const double slowest = std::max({so_far, std::max(inner, exchange) / static_cast<double>(replicas), moved});
        if (cut == last) {
          least = std::min(least, slowest);
        } else {
          extend(level, cut, last, count - replicas, slowest, least);
        }
      }
    }
  }

  StageCosts costs_;
  std::vector<Level> levels_;
};

}  // namespace

Answer pipedream(const Chain& chain) { return Partitioner(chain).answer(); }

Answer brute_pipedream(const Chain& chain) {
  const std::vector<Level> levels = levels_of(chain);
  return {.stages = {}, .objective = Brute(chain).best(levels.size() - 1, 0, chain.size(), levels.back().count)};
}

}  // namespace plimsoll::planner::named
