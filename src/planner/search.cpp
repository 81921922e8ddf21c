#include "planner/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>

#include <fmt/format.h>

#include "planner/neighbours.h"
#include "strategy/dimension.h"
#include "strategy/legality.h"

namespace plimsoll::planner {

namespace {

constexpr std::int64_t kChoicesBetweenReports = 256;

// A shape still to be filled in, or a choice still to be evaluated.
struct Open {
  double bound = 0.0;
  std::int64_t order = 0;  // of the visit
  bool is_shape = true;
  Choice choice;
  bool has_tiers = false;  // its other tiers are open or were looked at

  bool operator<(const Open& other) const {  // for a heap whose top is the lowest
    return bound != other.bound ? bound > other.bound : order > other.order;
  }
};

class Search {
 public:
  Search(Estimator& estimator, const Space& space, const SearchOptions& options)
      : estimator_(estimator), space_(space), options_(options), problem_(estimator.problem()) {}

  Found run() {
    open_shapes();
    double best = std::numeric_limits<double>::infinity();
    while (!open_.empty()) {
      const Open next = open_.top();
      if (too_slow(next.bound)) break;
      const bool proven = options_.prune && next.bound >= best;
      if (proven && next.bound >= last_wanted()) break;
      if (options_.first_that_fits && !found_.candidates.empty()) break;
      if (estimator_.pieces() > options_.most_pieces || (options_.stop && options_.stop())) {
        found_.complete = proven;
        break;
      }
      open_.pop();
      if (const auto known = meshes_.find(mesh_of(next.choice)); proven && known != meshes_.end() && next.bound >= known->second) continue;
      if (next.is_shape) {
        fill_in(next.choice);
      } else {
        best = std::min(best, evaluate(next));
      }
    }
    for (std::vector<Candidate>* list : {&found_.candidates, &found_.near}) {
      std::stable_sort(list->begin(), list->end(),
                       [](const Candidate& a, const Candidate& b) { return a.estimate.step_seconds < b.estimate.step_seconds; });
    }
    report(best);
    return std::move(found_);
  }

 private:
  using Mesh = std::array<std::int64_t, 3>;
  static Mesh mesh_of(const Choice& choice) { return {choice.strategy.data, choice.strategy.tensor, choice.strategy.pipe}; }

  // The slowest of the divisions that are asked for; infinite while some are missing.
  double last_wanted() const {
    if (static_cast<std::int64_t>(meshes_.size()) < options_.meshes) return std::numeric_limits<double>::infinity();
    std::vector<double> seconds;
    for (const auto& [mesh, best] : meshes_) seconds.push_back(best);
    const auto last = seconds.begin() + static_cast<std::ptrdiff_t>(options_.meshes - 1);
    std::nth_element(seconds.begin(), last, seconds.end());
    return *last;
  }

  bool too_slow(double seconds) const { return options_.within_seconds > 0.0 && seconds > options_.within_seconds; }
  bool too_large(Bytes device) const { return options_.prune && !nearly_fits(device); }
  bool nearly_fits(Bytes device) const {
    const double room = options_.near_misses ? 1.0 + kNearMiss : 1.0;
    return static_cast<double>(device.count) <= room * static_cast<double>(problem_.device.count);
  }

  void remember_least(const Choice& choice, Bytes device) {
    if (found_.least_device.count != 0 && device >= found_.least_device) return;
    found_.least_device = device;
    found_.least_name = describe(choice);
  }

  void open_shapes() {
    space_.visit_shapes(problem_, [&](const Choice& shape) {
      ++found_.progress.shapes;
      const std::string reason = estimator_.reason_against(shape);
      if (!reason.empty()) {
        if (found_.illegal.empty()) found_.illegal = reason;
        return;
      }
      const Bounds bounds = estimator_.shape_bounds(shape);
      if (too_large(bounds.device)) {
        // The bound is that of everything in shards.
        Choice leanest = shape;
        if (shape.strategy.data > 1) leanest.strategy.zero = 3;
        leanest.strategy.keep_grads = shape.strategy.data == 1;
        return remember_least(leanest, bounds.device);
      }
      open_.push({.bound = bounds.step_seconds, .order = order_++, .is_shape = true, .choice = shape});
    });
  }

  // Slower tiers take no less time: they are looked at where a choice does not fit, or what it keeps is fitted to what it has.
  void fill_in(const Choice& shape) {
    space_.visit_sharing(problem_, shape, [&](const Choice& choice) {
      const bool at_once = !options_.prune || shape.strategy.recompute == strategy::Recompute::optimal;
      if (!open_choice(choice, at_once) || at_once) open_tiers(choice);
    });
  }

  void open_tiers(const Choice& choice) {
    const Choice far = space_.farthest(problem_, choice);
    if (far == choice || !open_choice(far, true)) return;
    space_.visit_tiers(problem_, choice, [&](const Choice& other) {
      if (other != far) open_choice(other, true);
    });
  }

  // False where it cannot fit.
  bool open_choice(const Choice& choice, bool has_tiers) {
    ++found_.progress.bounded;
    const Bounds bounds = estimator_.bounds(choice);
    if (too_large(bounds.device)) {
      remember_least(choice, bounds.device);
      return false;
    }
    open_.push({.bound = bounds.step_seconds, .order = order_++, .is_shape = false, .choice = choice, .has_tiers = has_tiers});
    return true;
  }

  double evaluate(const Open& open) {
    const Choice& choice = open.choice;
    const Estimate estimate = estimator_.evaluate(choice);
    if (++found_.progress.evaluated % kChoicesBetweenReports == 0) report(found_.progress.best_seconds);
    if (!estimate.fits()) {
      if (estimate.memory.device() > problem_.device) remember_least(choice, estimate.memory.device());
      const bool of_device = estimate.memory.device() > problem_.device;
      // What is fitted to the memory and exceeds it has nothing left that could be made again.
      const bool near = of_device && estimate.step_seconds > 0.0 && nearly_fits(estimate.memory.device());
      if (near && choice.strategy.recompute != strategy::Recompute::optimal) found_.near.push_back({choice, estimate});
      if (!of_device && estimate.step_seconds > 0.0 && found_.elsewhere.empty())
        found_.elsewhere = fmt::format("{} {}", describe(choice), estimate.reason);
      if (found_.illegal.empty()) found_.illegal = estimate.reason;
      if (!open.has_tiers) open_tiers(choice);
      return std::numeric_limits<double>::infinity();
    }
    if (too_slow(estimate.step_seconds)) return std::numeric_limits<double>::infinity();
    found_.candidates.push_back({choice, estimate});
    double& of_mesh = meshes_.try_emplace(mesh_of(choice), estimate.step_seconds).first->second;
    of_mesh = std::min(of_mesh, estimate.step_seconds);
    return estimate.step_seconds;
  }

  void report(double best) {
    found_.progress.best_seconds = found_.candidates.empty() ? 0.0 : best;
    if (options_.progress) options_.progress(found_.progress);
  }

  Estimator& estimator_;
  const Space& space_;
  const SearchOptions& options_;
  const Problem& problem_;
  std::priority_queue<Open> open_;
  std::int64_t order_ = 0;
  std::map<Mesh, double> meshes_;  // that have a candidate, with the time of their best
  Found found_;
};

}  // namespace

Found search(Estimator& estimator, const Space& space, const SearchOptions& options) { return Search(estimator, space, options).run(); }

std::string why_slower(const Estimate& slower, const Estimate& best, std::optional<double> ratio) {
  const double difference = slower.step_seconds - best.step_seconds;
  const auto waited = [](const Estimate& estimate) {
    return estimate.bubble * (estimate.step_seconds - estimate.exposed - estimate.update_seconds);
  };
  struct Part {
    double seconds;
    std::string text;
  };
  const std::vector<Part> parts{
      {waited(slower) - waited(best),
       fmt::format("waits in the pipeline, {:.1f}% of the passes instead of {:.1f}%", 100.0 * slower.bubble, 100.0 * best.bubble)},
      {slower.exposed - best.exposed,
       fmt::format("communication that nothing hides, {:.3g} s instead of {:.3g}", slower.exposed, best.exposed)},
      {slower.update_seconds - best.update_seconds,
       fmt::format("the update, {:.3g} s instead of {:.3g}", slower.update_seconds, best.update_seconds)}};
  const Part& worst = *std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  const double share = ratio ? 100.0 * (*ratio - 1.0) : 100.0 * difference / best.step_seconds;
  if (share < -0.05 && ratio) return fmt::format("{:.1f}% faster, too little for estimates to tell", -share);
  if (share < -0.05) return fmt::format("{:.1f}% faster by estimate; the simulator preferred the best", -share);
  if (share < 0.05) return "takes as long";
  std::string why = worst.text;
  if (worst.seconds < 0.5 * difference) {
    // A part of the time that is too small to make the difference does not explain it.
    const double lost = difference / slower.step_seconds;
    const auto more = [&](double a, double b) { return a - b > std::max(0.005, 0.25 * lost); };
    why = "its operators are slower in this shape";
    if (more(slower.tensor_share, best.tensor_share)) {
      why = fmt::format("tensor ranks talk {:.0f}% of the computing time instead of {:.0f}%", 100.0 * slower.tensor_share,
                        100.0 * best.tensor_share);
    }
    if (more(slower.again_share, best.again_share)) why = fmt::format("{:.3g}% of the computing is done twice", 100.0 * slower.again_share);
    if (more(slower.wait_share, best.wait_share))
      why = fmt::format("waits for what is in shards or elsewhere, {:.0f}% of the passes", 100.0 * slower.wait_share);
  }
  // The plan loses more than anything that was estimated.
  if (ratio && difference < 0.5 * (*ratio - 1.0) * best.step_seconds) why = "its plan waits, which the estimate does not see";
  const std::string by = share < 100.0 ? fmt::format("{:.1f}% slower", share) : fmt::format("{:.3g} times as long", 1.0 + share / 100.0);
  return fmt::format("{}: {}", by, why);
}

std::vector<Verdict> explain(Estimator& estimator, const Space& space, const Candidate& best) {
  std::vector<Verdict> verdicts;
  for (Neighbour& neighbour : neighbours(estimator.problem(), space, best.choice)) {
    const Estimate estimate = estimator.evaluate(neighbour.choice);
    const std::string reason = estimate.fits() ? why_slower(estimate, best.estimate) : estimate.reason;
    verdicts.push_back({.what = std::move(neighbour.what), .reason = reason, .candidate = {std::move(neighbour.choice), estimate}});
  }
  return verdicts;
}

std::string describe(const Choice& choice) {
  const strategy::Strategy& strategy = choice.strategy;
  std::string text = fmt::format("data {} x tensor {} x pipe {}{}, micro-batch {}", strategy.data, strategy.tensor, strategy.pipe,
                                 strategy::more_text(strategy), choice.micro);
  if (strategy.pipe > 1) {
    text += ", " + strategy.schedule;
    if (strategy.chunks > 1) text += fmt::format(" of {} chunks", strategy.chunks);
    if (strategy.partition != strategy::StagePartition::equal) text += ", stages by cost";
  }
  if (strategy.sequence_parallel) text += ", sequence parallel";
  if (strategy.data > 1) {
    text += fmt::format(", ZeRO {}", strategy.zero);
    if (strategy.zero_group > 0) text += fmt::format(" in groups of {}", strategy.zero_group);
    if (strategy.zero >= 2 && strategy.keep_grads) text += ", whole gradients";
    if (strategy.zero == 3 && strategy.keep_params) text += ", weights stay gathered";
  }
  if (strategy.recompute != strategy::Recompute::none) text += fmt::format(", recompute {}", strategy::name_of(strategy.recompute));
  if (strategy.recompute_every > 1) text += fmt::format(" every {} blocks", strategy.recompute_every);
  const strategy::Offload& offload = strategy.offload;
  for (const auto& [name, share] : {std::pair{"optimizer", offload.optimizer},
                                    {"weights", offload.params},
                                    {"gradients", offload.gradients},
                                    {"activations", offload.activations}}) {
    if (share.anything()) text += fmt::format(", {} {}", name, share.disk > 0.0 ? "on the disk" : "in the host's memory");
  }
  if (strategy.split_activations) text += ", activations in parts";
  if (strategy.bucket < strategy::Strategy{}.bucket || strategy.prefetch < strategy::Strategy{}.prefetch)
    text += fmt::format(", buckets of {}, {} blocks ahead", base::to_string(strategy.bucket), strategy.prefetch);
  if (strategy.tile.count > 0) text += fmt::format(", weights over {} in tiles", base::to_string(strategy.tile));
  if (strategy.embedding_rows == strategy::EmbeddingRows::disk) text += ", the token table's rows on the disk";
  if (!choice.precision.empty()) text += ", " + choice.precision;
  return text;
}

}  // namespace plimsoll::planner
