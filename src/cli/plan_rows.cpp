#include "cli/plan_rows.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "plan/waterline.h"
#include "planner/leanest.h"
#include "train/foresight/planning.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;

constexpr std::int64_t kSimulatedPasses = 50'000;  // of blocks in all steps that are simulated, for those behind the best
constexpr std::int64_t kVerdictPasses = 10'000;    // the same of what lies beside the best
constexpr std::size_t kRowsAlways = 3;             // rows that are, however many passes they have
constexpr double kCloseCall = 1.1;                 // of a row's estimate, what the simulator is asked about
constexpr std::size_t kCloseCalls = 4;             // beside each row
constexpr std::size_t kNearMisses = 3;             // of a division, faster than what surely fits
constexpr std::size_t kRepairs = 4;                // of a row that does not fit
constexpr double kFaster = 0.995;                  // of a row's time, what takes its place
constexpr double kNearMiss = 1.25;                 // of the device's memory, what an estimate may be wrong about
constexpr std::size_t kLeanest = 16;               // plans of what holds least
constexpr std::int64_t kLeanestOfAKind = 3;        // of a division, with the same made again
constexpr std::size_t kFasterThanLeanest = 6;      // plans of what holds a little more
constexpr std::int64_t kMostBuckets = 20'000;

bool same_mesh(const planner::Choice& a, const planner::Choice& b) {
  return a.strategy.data == b.strategy.data && a.strategy.tensor == b.strategy.tensor && a.strategy.pipe == b.strategy.pipe;
}

bool is_faster(const Candidate& a, const Candidate& b) { return a.estimate.step_seconds < b.estimate.step_seconds; }

// Where the bytes of a plan's fullest rank are; what is of no kind of its own counts as working memory.
void take_memory(const plan::RankClass& rank_class, bool outlined, planner::Memory& memory) {
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)];
  memory.host = rank_class.arena[static_cast<std::size_t>(plan::Tier::host)];
  memory.disk = rank_class.arena[static_cast<std::size_t>(plan::Tier::disk)];
  if (outlined) {  // what a block's buffers are is not known, only their sum
    const double scale = static_cast<double>(arena.count) / static_cast<double>(std::max<std::int64_t>(1, memory.device().count));
    for (Bytes* part : {&memory.weights, &memory.gradients, &memory.optimizer, &memory.activations})
      *part = Bytes{static_cast<std::int64_t>(scale * static_cast<double>(part->count))};
  } else {
    const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
    memory.weights = memory.gradients = memory.optimizer = memory.activations = {};
    for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call)) {
      if (kind == plan::BufferKind::parameter) memory.weights += bytes;
      if (kind == plan::BufferKind::gradient) memory.gradients += bytes;
      if (kind == plan::BufferKind::state) memory.optimizer += bytes;
      if (kind == plan::BufferKind::activation) memory.activations += bytes;
    }
  }
  memory.working = arena - (memory.weights + memory.gradients + memory.optimizer + memory.activations);
}

// How closely: by the plan that training would run, or, where that would be made a dozen times until it fits, by its outline, which
// leaves out gaps between buffers.
enum class Closely : std::uint8_t { outline, plan };

bool may_be_outlined(const planner::Choice& choice) {
  return choice.strategy.recompute == strategy::Recompute::optimal && !choice.strategy.own_degrees();
}

// What the simulator found, or why there is no plan to simulate.
struct Word {
  std::optional<Simulated> simulated = {};
  std::string refusal = {};
  Bytes excess = {};  // of the device's memory, where that was it
};

// On success the candidate has the simulator's figures.
Word simulate_one(const Outcome& outcome, Candidate& candidate, Closely closely) {
  std::optional<train::Forecast> made;
  train::ForecastOptions options;
  const config::Run decided = train::decided(outcome.run, candidate.choice);
  if (closely == Closely::outline && may_be_outlined(candidate.choice)) options.outline = true;
  try {
    made = train::forecast(decided, outcome.cluster, options);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return {.refusal = error.what()};
  }
  const train::Forecast& forecast = *made;
  const plan::RankClass& fullest = plan::fullest_class(forecast.plan);
  const Bytes arena = fullest.arena[static_cast<std::size_t>(plan::Tier::device)];
  if (arena > outcome.problem.device)
    return {.refusal = fmt::format("{} needs {} on the device, {} more than there is", fullest.name, base::to_string(arena),
                                   base::to_string(arena - outcome.problem.device)),
            .excess = arena - outcome.problem.device};
  if (!forecast.fits()) return {.refusal = forecast.reason};
  candidate.estimate.reason.clear();
  candidate.estimate.step_seconds = forecast.step_seconds;
  candidate.estimate.bubble = forecast.result.bubble_fraction();
  take_memory(fullest, forecast.outlined, candidate.estimate.memory);
  Simulated simulated{
      .exposed = forecast.result.exposed_fraction(), .moved = {}, .outlined = forecast.outlined && !train::is_outlined(decided)};
  for (std::size_t link = 0; link < executor::sim::kLinkNames.size(); ++link)
    simulated.moved.emplace_back(executor::sim::kLinkNames[link], forecast.result.bytes[link]);
  return {.simulated = std::move(simulated)};
}

// What lives elsewhere is updated bucket by bucket: of large models the estimate has to do, unless it is the best.
bool has_few_buckets(const Candidate& candidate) {
  const Bytes elsewhere = candidate.estimate.memory.host + candidate.estimate.memory.disk;
  return elsewhere.count / std::max<std::int64_t>(1, candidate.choice.strategy.bucket.count) <= kMostBuckets;
}

// Of blocks, in all lowerings that simulating the choice takes. An outline has one place for all tensor ranks; of a block in tiles, some
// are as much work as a block.
std::int64_t passes_of(const Outcome& outcome, const planner::Choice& choice) {
  const std::int64_t lowerings = choice.strategy.recompute == strategy::Recompute::optimal ? 4 : 1;
  const bool outlined = may_be_outlined(choice) || train::is_outlined(train::decided(outcome.run, choice));
  constexpr std::int64_t kTilesOfAPass = 4;
  const Bytes tile = choice.strategy.tile;
  const std::int64_t tiles = tile.count > 0 ? std::max<std::int64_t>(1, outcome.problem.largest.count / tile.count / kTilesOfAPass) : 1;
  return lowerings * outcome.problem.layers * tiles * choice.micro_batches(outcome.problem) * (outlined ? 1 : choice.strategy.tensor);
}

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

namespace {

// Asks for plans of what the search did not look at, or gave up by its estimates.
class Leanest {
 public:
  Leanest(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins)
      : outcome_(outcome), estimator_(estimator), all_(planner::leanest(estimator, outcome.space, pins)) {}

  std::optional<Candidate> run() {
    find_any();
    if (!found_) return std::nullopt;
    find_faster();
    outcome_.rows = {shown_};
    outcome_.simulated = {word_};
    outcome_.found.candidates.push_back(*found_);
    if (first_.choice != found_->choice) outcome_.found.candidates.push_back(first_);
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
      if (found_) {
        first_ = *found_;
        measure_ = as_double(shown_.estimate.memory.device()) / as_double(lean.bounds.device);
      } else if (excess_.count > 0) {
        // A plan's figure takes the place of estimates.
        const Bytes needed = outcome_.problem.device + excess_;
        if (!any || needed < outcome_.found.least_device) {
          outcome_.found.least_device = needed;
          outcome_.found.least_name = planner::describe(lean.choice);
        }
        any = true;
      } else if (elsewhere.empty()) {
        elsewhere = fmt::format("{}: {}", planner::describe(lean.choice), refusal_);
      }
    }
    if (!any && outcome_.found.elsewhere.empty()) outcome_.found.elsewhere = elsewhere;
  }

  void find_faster() {
    const double room = as_double(outcome_.problem.device);
    std::vector<planner::Lean> order = all_;
    std::stable_sort(order.begin(), order.end(),
                     [](const planner::Lean& a, const planner::Lean& b) { return a.bounds.step_seconds < b.bounds.step_seconds; });
    asked_ = 0;
    for (const planner::Lean& lean : order) {
      if (asked_ == kFasterThanLeanest || lean.bounds.step_seconds >= shown_.estimate.step_seconds) return;
      if (lean.choice != found_->choice && measure_ * as_double(lean.bounds.device) <= room) ask(lean);
    }
  }

  static double as_double(Bytes bytes) { return static_cast<double>(bytes.count); }

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
    if (word.simulated && (!found_ || is_faster(asked, shown_))) {
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
  Candidate first_;
  std::optional<Simulated> word_;
  double measure_ = 1.0;  // of a bound, what a plan turned out to need
  Bytes excess_;          // of what was asked last
  std::string refusal_;   // the same
  std::size_t asked_ = 0;
  std::int64_t passes_ = 0;
};

}  // namespace

std::optional<Candidate> simulate_leanest(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins) {
  return Leanest(outcome, estimator, pins).run();
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
