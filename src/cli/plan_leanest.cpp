#include "cli/plan_leanest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "cli/plan_word.h"
#include "planner/finer.h"
#include "planner/leanest.h"
#include "planner/neighbours.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;

constexpr std::size_t kLeanest = 16;          // plans of what holds least
constexpr std::int64_t kLeanestOfAKind = 4;   // of a division, with the same made again
constexpr double kAlike = 0.03;               // of estimated times, where pieces are what they differ in
constexpr std::size_t kSteps = 64;            // plans of what differs in one answer from the best so far
constexpr std::int64_t kStepPasses = 6'000;   // of blocks in all of these
constexpr std::int64_t kLeanPasses = 30'000;  // the same, where the first was the least that there is
constexpr double kNoSlower = 1.1;             // of an estimate, what the simulator is asked about
constexpr double kNoLarger = 1.25;            // the same of memory

double as_double(Bytes bytes) { return static_cast<double>(bytes.count); }

// Asks for plans of what the search did not look at, or gave up by its estimates.
class Leanest {
 public:
  Leanest(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins)
      : outcome_(outcome), estimator_(estimator), all_(planner::leanest(estimator, outcome.space, pins)) {}

  std::optional<Candidate> run() {
    find_any();
    if (!found_) return std::nullopt;
    outcome_.rows = {shown_};
    outcome_.simulated = {word_};
    outcome_.found.candidates.push_back(*found_);
    return found_;
  }

 private:
  void find_any() {
    std::map<std::array<std::int64_t, 4>, std::int64_t> tried;
    bool any = false;
    std::string elsewhere;
    for (const planner::Lean& lean : all_) {
      if (found_ || asked_ == kLeanest) break;
      const strategy::Strategy& strategy = lean.choice.strategy;
      std::int64_t& of_kind = tried[{strategy.data, strategy.tensor, strategy.pipe, static_cast<std::int64_t>(strategy.recompute)}];
      if (of_kind == kLeanestOfAKind || !ask(lean)) continue;
      ++of_kind;
      if (!found_ && excess_.count > 0) {
        // A plan's figure takes the place of estimates.
        const Bytes needed = outcome_.problem.device + excess_;
        if (!any || needed < outcome_.found.least_device) {
          outcome_.found.least_device = needed;
          outcome_.found.least_name = planner::describe(lean.choice);
        }
        any = true;
      } else if (!found_ && elsewhere.empty()) {
        elsewhere = fmt::format("{}: {}", planner::describe(lean.choice), refusal_);
      }
    }
    if (!any && outcome_.found.elsewhere.empty()) outcome_.found.elsewhere = elsewhere;
  }

  // False where that would take too long. What has a plan and is faster than what had one before takes its place.
  bool ask(const planner::Lean& lean) {
    const Candidate estimated{lean.choice, estimator_.evaluate(lean.choice)};
    if (!has_few_buckets(estimated) || passes_ > kSimulatedPasses) return false;
    passes_ += passes_of(outcome_, lean.choice);
    ++asked_;
    Candidate asked = estimated;
    const Word word = simulate_one(outcome_, asked, Closely::plan);
    excess_ = word.excess;
    refusal_ = word.refusal;
    if (word.simulated) {
      found_ = estimated;
      shown_ = asked;
      word_ = word.simulated;
    }
    return true;
  }

  Outcome& outcome_;
  planner::Estimator& estimator_;
  std::vector<planner::Lean> all_;
  std::optional<Candidate> found_;  // as it was estimated
  Candidate shown_;
  std::optional<Simulated> word_;
  Bytes excess_;         // of what was asked last
  std::string refusal_;  // the same
  std::size_t asked_ = 0;
  std::int64_t passes_ = 0;
};

// Goes from a strategy that has a plan to one beside it that is faster, as long as there is one: the search looks neither at tiles, buckets
// and groups of blocks, nor at what its estimates are wrong about.
class Steps {
 public:
  Steps(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins, const Candidate& estimated, std::int64_t most_passes)
      : outcome_(outcome), estimator_(estimator), pins_(pins), most_(most_passes), estimated_(estimated), asked_{estimated.choice} {}

  std::optional<Candidate> run() {
    bool any = false;
    while (has_time() && step()) any = true;
    return any ? std::optional(estimated_) : std::nullopt;
  }

 private:
  bool has_time() const { return asked_.size() <= kSteps && passes_ < most_; }

  bool step() {
    for (const Candidate& candidate : beside()) {
      if (!has_time()) return false;
      if (std::any_of(too_large_.begin(), too_large_.end(),
                      [&](const planner::Choice& choice) { return holds_more(candidate.choice, choice); }))
        continue;
      if (passes_ + passes_of(outcome_, candidate.choice) > most_) continue;
      passes_ += passes_of(outcome_, candidate.choice);
      asked_.push_back(candidate.choice);
      Candidate shown = candidate;
      const Word word = simulate_one(outcome_, shown, Closely::plan);
      if (word.excess.count > 0) too_large_.push_back(candidate.choice);
      if (!word.simulated || shown.estimate.step_seconds >= kFaster * outcome_.rows[0].estimate.step_seconds) continue;
      estimated_ = candidate;
      outcome_.rows[0] = shown;
      outcome_.simulated[0] = word.simulated;
      return true;
    }
    return false;
  }

  // What is estimated to be about as fast or faster, and to need about as much as there is or less, be it in the measure of the plan that
  // there is; fastest first.
  std::vector<Candidate> beside() {
    const double measure =
        std::min(1.0, as_double(outcome_.rows[0].estimate.memory.device()) / as_double(estimated_.estimate.memory.device()));
    std::vector<Candidate> found;
    const auto consider = [&](planner::Choice choice) {
      if (std::find(asked_.begin(), asked_.end(), choice) != asked_.end() || !estimator_.reason_against(choice).empty()) return;
      const planner::Estimate estimate = estimator_.evaluate(choice);
      const Bytes elsewhere = estimate.memory.host + estimate.memory.disk;
      const bool fits = measure * as_double(estimate.memory.device()) <= kNoLarger * as_double(outcome_.problem.device);
      if (!fits || estimate.step_seconds > kNoSlower * estimated_.estimate.step_seconds ||
          elsewhere > outcome_.problem.host + outcome_.problem.disk)
        return;
      Candidate candidate{std::move(choice), estimate};
      if (has_few_buckets(candidate)) found.push_back(std::move(candidate));
    };
    const planner::Choice& now = estimated_.choice;
    for (planner::Choice& choice : planner::finer(outcome_.problem, outcome_.space, pins_, now)) consider(std::move(choice));
    for (planner::Choice& choice : planner::plain(outcome_.problem, outcome_.space, pins_, now)) consider(std::move(choice));
    for (planner::Neighbour& neighbour : planner::neighbours(outcome_.problem, outcome_.space, now)) {
      if (same_mesh(neighbour.choice, now)) consider(std::move(neighbour.choice));
    }
    std::stable_sort(found.begin(), found.end(), is_likelier);
    return found;
  }

  // Whether nothing of `a` is smaller or farther away than of `b`.
  static bool holds_more(const planner::Choice& a, const planner::Choice& b) {
    const strategy::Strategy& more = a.strategy;
    const strategy::Strategy& less = b.strategy;
    const auto nearer = [&](strategy::TierShare strategy::Offload::* share) {
      return planner::tier_of(more.offload.*share) <= planner::tier_of(less.offload.*share);
    };
    planner::Choice otherwise = b;
    otherwise.micro = a.micro;
    otherwise.strategy.offload = more.offload;
    otherwise.strategy.tile = more.tile;
    otherwise.strategy.bucket = more.bucket;
    otherwise.strategy.prefetch = more.prefetch;
    const bool tiles = more.tile.count == 0 || (less.tile.count > 0 && more.tile >= less.tile);
    return otherwise == a && tiles && a.micro >= b.micro && more.prefetch >= less.prefetch && more.bucket >= less.bucket &&
           nearer(&strategy::Offload::optimizer) && nearer(&strategy::Offload::params) && nearer(&strategy::Offload::gradients) &&
           nearer(&strategy::Offload::activations);
  }

  // Estimates do not tell large pieces from small ones, which take more calls.
  static bool is_likelier(const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& candidate) {
      const strategy::Strategy& strategy = candidate.choice.strategy;
      const double size = strategy.tile.count == 0 ? std::numeric_limits<double>::infinity() : as_double(strategy.tile);
      return std::tuple(std::floor(std::log(candidate.estimate.step_seconds) / kAlike), strategy.recompute_every, -size, -strategy.prefetch,
                        -strategy.bucket.count);
    };
    return rank(a) < rank(b);
  }

  Outcome& outcome_;
  planner::Estimator& estimator_;
  const planner::Pins& pins_;
  std::int64_t most_;  // passes
  Candidate estimated_;
  std::vector<planner::Choice> asked_;
  std::vector<planner::Choice> too_large_;  // of these
  std::int64_t passes_ = 0;
};

}  // namespace

std::optional<Candidate> simulate_leanest(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins) {
  std::optional<Candidate> found = Leanest(outcome, estimator, pins).run();
  if (!found) return found;
  const std::optional<Candidate> faster = Steps(outcome, estimator, pins, *found, kLeanPasses).run();
  if (faster) outcome.found.candidates.insert(outcome.found.candidates.begin(), *faster);
  return faster ? faster : found;
}

std::optional<Candidate> simulate_steps(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins, const Candidate& best) {
  if (best.choice.strategy.offload == strategy::Offload{}) return std::nullopt;
  return Steps(outcome, estimator, pins, best, kStepPasses).run();
}

}  // namespace plimsoll::cli
