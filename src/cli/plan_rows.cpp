#include "cli/plan_rows.h"

#include <algorithm>

#include "cli/plan_word.h"
#include "planner/neighbours.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;

constexpr std::int64_t kVerdictPasses = 100'000;  // the same of what lies beside the best
constexpr std::size_t kRowsAlways = 3;            // rows that are, however many passes they have
constexpr double kCloseCall = 1.1;                // of a row's estimate, what the simulator is asked about
constexpr std::size_t kCloseCalls = 4;            // beside each row
constexpr std::size_t kNearMisses = 3;            // of a division, faster than what surely fits
constexpr std::size_t kRepairs = 4;               // of a row that does not fit
constexpr double kNearMiss = 1.25;                // of the device's memory, what an estimate may be wrong about

// One division of the ranks.
struct Row {
  Candidate shown;                   // with the simulator's figures, once it was asked
  Candidate estimated;               // as it was estimated
  std::vector<Candidate> near = {};  // estimated to be faster, and to need a little more than there is
  std::optional<Simulated> simulated = {};
  bool exact = false;  // by its plan
};

// The best candidate of each division, and what nearly fits there and would be faster. A division of which nothing surely fits has what
// nearly does.
std::vector<Row> best_of_meshes(const Found& found, std::size_t most) {
  std::vector<Row> rows;
  const auto row_of = [&](const Candidate& candidate) {
    return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return same_mesh(row.shown.choice, candidate.choice); });
  };
  for (const Candidate& candidate : found.candidates) {
    if (row_of(candidate) == rows.end()) rows.push_back({candidate, candidate});
  }
  for (const Candidate& candidate : found.near) {
    const auto row = row_of(candidate);
    if (row == rows.end()) {
      rows.push_back({candidate, candidate});
    } else if (row->near.size() < kNearMisses && is_faster(candidate, row->estimated)) {
      row->near.push_back(candidate);
    }
  }
  const auto hope = [](const Row& row) { return (row.near.empty() ? row.estimated : row.near[0]).estimate.step_seconds; };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return hope(a) < hope(b); });
  if (rows.size() > most) rows.resize(most);
  return rows;
}

// Rows are simulated to the instruction and put in order again, as far as that is quick. An estimate is not exact: the simulator also
// decides between a row and what lies beside it and is estimated to take about as long.
class Rows {
 public:
  Rows(Outcome& outcome, planner::Estimator& estimator, std::size_t most)
      : outcome_(outcome), estimator_(estimator), rows_(best_of_meshes(outcome.found, most)) {}

  std::optional<Candidate> run() {
    for (std::size_t index = 0; index < rows_.size() && (index < kRowsAlways || has_time());) {
      const bool stays = !has_few_buckets(rows_[index].shown) || settle(index, Closely::outline);
      index += stays ? 1 : 0;
    }
    simulate_first();
    for (Row& row : rows_) {
      while (row.simulated && has_time() && improve(row)) {
      }
    }
    simulate_first();
    if (rows_.empty()) return std::nullopt;
    for (const Row& row : rows_) {
      outcome_.rows.push_back(row.shown);
      outcome_.simulated.push_back(row.simulated);
    }
    return rows_[0].estimated;
  }

 private:
  // However long it takes. A row that turns out slower makes way for the next, which is then the first.
  void simulate_first() {
    sort();
    while (!rows_.empty() && !rows_[0].exact) {
      settle(0, Closely::plan);
      sort();
    }
    // What was only estimated and surely does not fit is no answer.
    std::erase_if(rows_, [](const Row& row) { return !row.simulated && !row.shown.estimate.fits(); });
  }

  // Counted rather than measured, since ranks that each plan must come to the same end.
  bool has_time() const { return passes_ < kSimulatedPasses; }

  Word ask(Candidate& candidate, Closely closely) {
    passes_ += passes_of(outcome_, candidate.choice);
    const bool expected = candidate.estimate.fits();
    Word word = simulate_one(outcome_, candidate, closely);
    const auto known = [&](const Refused& each) { return each.choice == candidate.choice; };
    if (expected && !word.simulated && std::none_of(outcome_.refused.begin(), outcome_.refused.end(), known))
      outcome_.refused.push_back({candidate.choice, word.refusal});
    return word;
  }

  // The row's strategy, or the best of its division that has a plan; false where none has, and the row has gone.
  bool settle(std::size_t index, Closely closely) {
    Row& row = rows_[index];
    for (const Candidate& candidate : std::exchange(row.near, {})) {
      if (has_few_buckets(candidate) && has_time() && takes(row, candidate, closely)) return true;
    }
    const Candidate estimated = row.estimated;
    Candidate asked = estimated;
    const Word word = ask(asked, closely);
    if (word.simulated) {
      row = {std::move(asked), estimated, {}, word.simulated, is_exact(estimated, closely)};
      return true;
    }
    for (const Candidate& candidate : repairs(estimated, word.excess)) {
      if (takes(row, candidate, closely)) return true;
    }
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(index));
    return false;
  }

  // Whether the candidate has a plan, which is then the row's.
  bool takes(Row& row, const Candidate& candidate, Closely closely) {
    Candidate asked = candidate;
    const Word word = ask(asked, closely);
    if (!word.simulated) return false;
    row = {std::move(asked), candidate, {}, word.simulated, is_exact(candidate, closely)};
    return true;
  }

  static bool is_exact(const Candidate& candidate, Closely closely) {
    return closely == Closely::plan || !may_be_outlined(candidate.choice);
  }

  // Of the same division, what was estimated to need enough less, fastest first: found by the search, or beside the candidate (made
  // again, in another tier, in more shards).
  std::vector<Candidate> repairs(const Candidate& failed, Bytes excess) {
    std::vector<Candidate> found;
    const Bytes room = std::min(outcome_.problem.device, failed.estimate.memory.device() - excess);
    const auto consider = [&](const Candidate& candidate) {
      if (candidate.choice == failed.choice || !same_mesh(candidate.choice, failed.choice) || !candidate.estimate.fits()) return;
      if (excess.count > 0 && candidate.estimate.memory.device() > room) return;
      found.push_back(candidate);
    };
    for (const Candidate& candidate : outcome_.found.candidates) consider(candidate);
    for (planner::Neighbour& neighbour : planner::neighbours(outcome_.problem, outcome_.space, failed.choice)) {
      if (!same_mesh(neighbour.choice, failed.choice)) continue;
      const planner::Estimate estimate = estimator_.evaluate(neighbour.choice);
      consider({std::move(neighbour.choice), estimate});
    }
    std::stable_sort(found.begin(), found.end(), is_faster);
    if (found.size() > kRepairs) found.resize(kRepairs);
    return found;
  }

  // True where something beside the row is faster, and the row has become that.
  bool improve(Row& row) {
    std::vector<Candidate> beside;
    for (planner::Neighbour& neighbour : planner::neighbours(outcome_.problem, outcome_.space, row.shown.choice)) {
      if (!same_mesh(neighbour.choice, row.shown.choice)) continue;
      const planner::Estimate estimate = estimator_.evaluate(neighbour.choice);
      if (estimate.fits() && estimate.step_seconds < kCloseCall * row.estimated.estimate.step_seconds)
        beside.push_back({std::move(neighbour.choice), estimate});
    }
    std::stable_sort(beside.begin(), beside.end(), is_faster);
    if (beside.size() > kCloseCalls) beside.resize(kCloseCalls);
    for (const Candidate& candidate : beside) {
      if (!has_time() || !has_few_buckets(candidate)) continue;
      Candidate asked = candidate;
      const Word word = ask(asked, Closely::outline);
      if (!word.simulated || asked.estimate.step_seconds >= kFaster * row.shown.estimate.step_seconds) continue;
      row = {std::move(asked), candidate, {}, word.simulated, is_exact(candidate, Closely::outline)};
      return true;
    }
    return false;
  }

  void sort() {
    std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return is_faster(a.shown, b.shown); });
  }

  Outcome& outcome_;
  planner::Estimator& estimator_;
  std::vector<Row> rows_;
  std::int64_t passes_ = 0;
};

}  // namespace

std::optional<Candidate> simulate_rows(Outcome& outcome, planner::Estimator& estimator, std::size_t most) {
  return Rows(outcome, estimator, most).run();
}

std::optional<Candidate> simulate_verdicts(Outcome& outcome, const Candidate& best) {
  std::optional<Candidate> better;
  std::optional<Candidate> shown;
  std::optional<Simulated> word;
  const double seconds = outcome.rows[0].estimate.step_seconds;
  // What is said of the bubble is said in the simulator's figures, or in their measure.
  planner::Estimate first = best.estimate;
  first.bubble = outcome.rows[0].estimate.bubble;
  const double bubbles = best.estimate.bubble > 0.0 ? first.bubble / best.estimate.bubble : 1.0;
  std::vector<planner::Verdict*> order;
  for (planner::Verdict& verdict : outcome.verdicts) order.push_back(&verdict);
  std::stable_sort(order.begin(), order.end(),
                   [](const planner::Verdict* a, const planner::Verdict* b) { return is_faster(a->candidate, b->candidate); });
  std::int64_t passes = 0;
  for (planner::Verdict* verdict : order) {
    Candidate& candidate = verdict->candidate;
    // What is estimated to need a little more than there is may fit after all.
    const double needed = static_cast<double>(candidate.estimate.memory.device().count);
    const double room = static_cast<double>(outcome.problem.device.count);
    const bool near = candidate.estimate.step_seconds > 0.0 && needed > room && needed <= kNearMiss * room;
    if (!candidate.estimate.fits() && !near) continue;
    const planner::Estimate estimated = candidate.estimate;
    candidate.estimate.step_seconds *= seconds / best.estimate.step_seconds;
    candidate.estimate.bubble = std::min(1.0, bubbles * estimated.bubble);
    if (candidate.estimate.fits()) {
      planner::Estimate measured = estimated;
      measured.bubble = candidate.estimate.bubble;
      verdict->reason = planner::why_slower(measured, first);
    }
    if (!has_few_buckets(candidate)) continue;
    passes += passes_of(outcome, candidate.choice);
    if (passes > kVerdictPasses) continue;
    Candidate simulated = candidate;
    const Word found = simulate_one(outcome, simulated, Closely::plan);
    if (!found.simulated) {
      verdict->reason = candidate.estimate.reason = found.refusal;
      if (found.excess.count == 0) candidate.estimate.step_seconds = 0.0;  // there is no plan: nothing of it is an estimate
      verdict->simulated = found.excess.count > 0;
      continue;
    }
    if (simulated.estimate.step_seconds < kFaster * (shown ? shown->estimate.step_seconds : seconds)) {
      better = {candidate.choice, estimated};
      shown = simulated;
      word = found.simulated;
    }
    candidate = simulated;
    verdict->simulated = true;
    planner::Estimate measured = estimated;
    measured.bubble = simulated.estimate.bubble;
    verdict->reason = planner::why_slower(measured, first, simulated.estimate.step_seconds / seconds);
  }
  if (!better) return better;
  for (std::size_t index = outcome.rows.size(); index-- > 0;) {
    if (!same_mesh(outcome.rows[index].choice, shown->choice)) continue;
    outcome.rows.erase(outcome.rows.begin() + static_cast<std::ptrdiff_t>(index));
    outcome.simulated.erase(outcome.simulated.begin() + static_cast<std::ptrdiff_t>(index));
  }
  outcome.rows.insert(outcome.rows.begin(), *shown);
  outcome.simulated.insert(outcome.simulated.begin(), word);
  return better;
}

}  // namespace plimsoll::cli
