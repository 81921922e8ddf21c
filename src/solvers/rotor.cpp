// Two tables over runs of stages s..t and free memory m, of which the gradient of t's output takes its part and s's input none:
//
//   fresh(s, t, m)     the least time from s's input and the gradient of t's output to the gradient of s's input
//   held(k, s, t, m)   the same where form k of t is already there, outside m; what is missing is t's input
//
// Each is the best of three beginnings. *Keep*: s goes forward and stays in one of its forms until its turn comes. *Check*:
// s..q-1 go forward leaving only q's input; q..t are done; then s..q-1 from the start. *Drop*: s..r go forward leaving
// only a form of r, without r's input; r+1..t are done; then s..r, with r held.
//
// Tables hold floats by m in rows, so that the inner loops are vector loops. Which beginning was best is found again when the
// order is written down. Runs of equal stages share a row: a model of L equal blocks has about 3 L of them.
#include "solvers/rotor.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace plimsoll::solvers {

namespace {

using Work = ChainStep::Work;

constexpr float kDoesNotFit = std::numeric_limits<float>::infinity();

// The chain in slots.
struct Form {
  std::int32_t saved = 0;
  std::int32_t forward_need = 0;   // free slots to make it, but for the gradient held meanwhile
  std::int32_t backward_need = 0;  // free slots for its backward pass, the form and the gradients included
  float backward = 0.0f;
  bool operator==(const Form&) const = default;
};

struct Stage {
  std::int32_t output = 0;
  std::int32_t temporary = 0;
  std::int32_t waiting = 0;  // held while runs that end here go forward: the gradient of the output, and later stages' weight gradients
  float forward = 0.0f;
  float forward_again = 0.0f;  // right before its backward pass
  std::vector<Form> forms;
  bool operator==(const Stage&) const = default;
};

// More slots than any table has.
constexpr std::int32_t kTooMany = 1 << 30;

}  // namespace

class RotorTable::Programme {
 public:
  Programme(const Chain& chain, std::int64_t memory, const RotorOptions& options) : options_(options) {
    PLIMSOLL_CHECK(!chain.stages.empty() && options.slots > 0, "a chain without stages");
    const std::int64_t free = memory - chain.input;
    slot_ = std::max<std::int64_t>(1, (free + options.slots - 1) / options.slots);
    top_ = static_cast<std::int32_t>(std::max<std::int64_t>(0, free) / slot_);
    std::int64_t later = 0;  // weight gradients of the stages behind
    stages_.resize(chain.stages.size());
    for (std::size_t index = chain.stages.size(); index-- > 0;) {
      const ChainStage& from = chain.stages[index];
      Stage& to = stages_[index];
      to = {.output = slots(from.output), .temporary = slots(from.temporary), .waiting = slots(from.gradient + later), .forms = {}};
      to.forward = static_cast<float>(from.forward);
      to.forward_again = static_cast<float>(index + 1 == chain.stages.size() ? from.forward : from.forward_again);
      later += from.weight_gradients;
      for (const ChainForm& form : from.forms) {
        const std::int32_t saved = slots(form.saved);
        to.forms.push_back({.saved = saved,
                            .forward_need = saved + to.temporary,
                            .backward_need = saved + slots(from.gradient + later) + slots(form.temporary),
                            .backward = static_cast<float>(form.backward)});
      }
      most_forms_ = std::max(most_forms_, to.forms.size());
    }
  }

  void run() {
    number_runs();
    width_ = static_cast<std::size_t>(top_) + 1;
    nothing_.assign(width_, 0.0f);
    fresh_.assign(runs_ * width_, kDoesNotFit);
    if (options_.drops_inputs) held_.assign(most_forms_ * runs_ * width_, kDoesNotFit);
    visit_runs([&](std::size_t s, std::size_t t) { fill(s, t); });
  }

  // Whether anything fits, without the tables: of every run only from where on it does.
  bool fits() {
    number_runs();
    least_fresh_.assign(runs_, kTooMany);
    if (options_.drops_inputs) least_held_.assign(most_forms_ * runs_, kTooMany);
    visit_runs([&](std::size_t s, std::size_t t) { find_least(s, t); });
    return least_fresh_[run_of(0, stages_.size() - 1)] <= top_;
  }

  double time(std::size_t first, std::size_t last, std::int64_t free) {
    return free < 0 ? kDoesNotFit : row(asked(first, last))[slots_in(free)];
  }

  ChainOrder order(std::size_t first, std::size_t last, std::int64_t free) {
    order_.clear();
    write(first, last, Asked::kFresh, slots_in(free));
    return std::move(order_);
  }

 private:
  std::int32_t slots_in(std::int64_t free) const { return static_cast<std::int32_t>(std::min<std::int64_t>(top_, free / slot_)); }

  std::int32_t slots(std::int64_t bytes) const {
    return static_cast<std::int32_t>(std::min<std::int64_t>((bytes + slot_ - 1) / slot_, 1 << 28));
  }

  // ---- runs of stages

  // A run that is the run before it, one stage further on, has its number.
  void number_runs() {
    const std::size_t count = stages_.size();
    number_.assign(count * count, 0);
    runs_ = 0;
    std::vector<std::size_t> alike(count, 1);  // stages from here back that are equal
    for (std::size_t s = 1; s < count; ++s) alike[s] = stages_[s] == stages_[s - 1] ? alike[s - 1] + 1 : 1;
    for (std::size_t s = 0; s < count; ++s) {
      for (std::size_t t = s; t < count; ++t) {
        const bool shifted = alike[t] > t - s + 1;
        number_[s * count + t] = shifted ? number_[(s - 1) * count + t - 1] : runs_++;
      }
    }
  }

  std::size_t run_of(std::size_t s, std::size_t t) const { return number_[s * stages_.size() + t]; }

  // Calls visit for one of each number, shorter runs first.
  template <typename Visit>
  void visit_runs(Visit&& visit) const {
    const std::size_t count = stages_.size();
    std::vector<bool> seen(runs_, false);
    for (std::size_t length = 1; length <= count; ++length) {
      for (std::size_t s = 0; s + length <= count; ++s) {
        const std::size_t run = run_of(s, s + length - 1);
        if (!seen[run]) visit(s, s + length - 1);
        seen[run] = true;
      }
    }
  }

  // What is asked about: a run, and the form of its last stage that is held, if one is.
  struct Asked {
    std::size_t run = kNothing;
    std::size_t held = kFresh;

    static constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();  // takes no time and no memory
    static constexpr std::size_t kFresh = std::numeric_limits<std::size_t>::max();
  };

  Asked asked(std::size_t s, std::size_t t, std::size_t held = Asked::kFresh) const { return {run_of(s, t), held}; }

  float* row(const Asked& of) {
    if (of.run == Asked::kNothing) return nothing_.data();
    return of.held == Asked::kFresh ? fresh_.data() + of.run * width_ : held_.data() + (of.held * runs_ + of.run) * width_;
  }

  std::int32_t& least(const Asked& of) { return of.held == Asked::kFresh ? least_fresh_[of.run] : least_held_[of.held * runs_ + of.run]; }

  // ---- beginnings

  // A way to begin: from `need` free slots on, time[m] = time + first[m - taken] + second[m + given].
  struct Beginning {
    enum class Kind : std::uint8_t { keep, check, drop } kind = Kind::keep;
    std::size_t at = 0;    // q or r
    std::size_t form = 0;  // of s (keep) or r (drop)
    std::int32_t need = 0;
    float time = 0.0f;
    Asked first{};
    std::int32_t taken = 0;
    Asked second{};
    std::int32_t given = 0;
  };

  // Calls visit for every beginning of s..t. `held_form`: the form in which t is held, if it is.
  template <typename Visit>
  void for_beginnings(std::size_t s, std::size_t t, std::size_t held_form, Visit&& visit) const {
    const Form* holding = held_form == Asked::kFresh ? nullptr : &stages_[t].forms[held_form];
    const std::int32_t extra = holding != nullptr ? holding->saved : 0;  // comes free with t's backward pass
    const std::int32_t waiting = stages_[t].waiting;
    const auto rest = [&](std::size_t from) { return asked(from, t, held_form); };
    for (std::size_t form = 0; form < stages_[s].forms.size(); ++form) {
      const Form& kept = stages_[s].forms[form];
      if (s == t && holding != nullptr && form != held_form) continue;
      Beginning keep{.form = form, .time = kept.backward};
      if (s == t && holding != nullptr) {
        keep.need = kept.backward_need - kept.saved;
      } else {
        keep.time += s == t ? stages_[s].forward_again : stages_[s].forward;
        keep.need = std::max(waiting + kept.forward_need, kept.backward_need - extra);
        if (s < t) keep.first = rest(s + 1);
        keep.taken = kept.saved;
      }
      visit(keep);
    }
    float time = 0.0f;
    std::int32_t need = 0;  // of the forward passes s..q-1
    for (std::size_t q = s + 1; q <= t; ++q) {
      const Stage& last = stages_[q - 1];
      time += last.forward;
      need = std::max(need, waiting + last.output + last.temporary + (q - 1 > s ? stages_[q - 2].output : 0));
      visit(Beginning{.kind = Beginning::Kind::check,
                      .at = q,
                      .need = std::max(need, last.output),
                      .time = time,
                      .first = rest(q),
                      .taken = last.output,
                      .second = asked(s, q - 1),
                      .given = extra});
      if (!options_.drops_inputs || q == t) continue;
      for (std::size_t form = 0; form < stages_[q].forms.size(); ++form) {
        const Form& kept = stages_[q].forms[form];
        visit(Beginning{.kind = Beginning::Kind::drop,
                        .at = q,
                        .form = form,
                        .need = std::max(need, waiting + last.output + kept.forward_need),
                        .time = time + stages_[q].forward,
                        .first = rest(q + 1),
                        .taken = kept.saved,
                        .second = asked(s, q, form),
                        .given = extra - kept.saved});
      }
    }
  }

  // Above the top of a table there is as much as at the top.
  void take(const Beginning& begin, float* best) {
    const std::int32_t low = lowest(begin);
    const std::int32_t turn = std::clamp(top_ - begin.given + 1, low, std::max(low, top_ + 1));
    for (std::int32_t m = turn; m <= top_; ++m) best[m] = std::min(best[m], time_of(begin, m));
    if (turn <= low) return;
    float* const to = best + low;
    const float* const first = row(begin.first) + (low - begin.taken);
    const float* const second = row(begin.second) + (low + begin.given);
    for (std::int32_t index = 0; index < turn - low; ++index) {
      const float time = begin.time + first[index] + second[index];
      to[index] = time < to[index] ? time : to[index];
    }
  }

  std::int32_t lowest(const Beginning& begin) const { return std::max({begin.need, begin.taken, -begin.given, 0}); }

  float time_of(const Beginning& begin, std::int32_t m) {
    if (m < lowest(begin)) return kDoesNotFit;
    return begin.time + row(begin.first)[m - begin.taken] + row(begin.second)[std::min(top_, m + begin.given)];
  }

  template <typename Do>
  void for_each_table(std::size_t t, Do&& act) {
    act(Asked::kFresh);
    for (std::size_t form = 0; options_.drops_inputs && form < stages_[t].forms.size(); ++form) act(form);
  }

  void fill(std::size_t s, std::size_t t) {
    for_each_table(t, [&](std::size_t held) {
      float* const best = row(asked(s, t, held));
      for_beginnings(s, t, held, [&](const Beginning& begin) { take(begin, best); });
    });
  }

  void find_least(std::size_t s, std::size_t t) {
    for_each_table(t, [&](std::size_t held) {
      std::int32_t& best = least(asked(s, t, held));
      for_beginnings(s, t, held, [&](const Beginning& begin) { best = std::min(best, least_of(begin)); });
    });
  }

  // From where on a beginning works out; what needs more than the table has never does.
  std::int32_t least_of(const Beginning& begin) {
    std::int32_t from = lowest(begin);
    const auto and_then = [&](const Asked& what, std::int32_t moved) {
      if (what.run == Asked::kNothing) return;
      from = least(what) > top_ ? kTooMany : std::max(from, least(what) + moved);
    };
    and_then(begin.first, begin.taken);
    and_then(begin.second, -begin.given);
    return from > top_ ? kTooMany : from;
  }

  // ---- writing the order down

  Beginning best_beginning(std::size_t s, std::size_t t, std::size_t held_form, std::int32_t m) {
    Beginning best;
    float least = kDoesNotFit;
    for_beginnings(s, t, held_form, [&](const Beginning& begin) {
      const float time = time_of(begin, m);
      if (time >= least) return;
      least = time;
      best = begin;
    });
    PLIMSOLL_CHECK(least < kDoesNotFit, "stages {} to {} do not fit after all", s + 1, t + 1);
    return best;
  }

  void forward(std::size_t stage, std::int32_t form, bool frees_input) {
    order_.push_back({Work::forward, static_cast<std::int32_t>(stage), form, frees_input});
  }
  void backward(std::size_t stage, std::size_t form) {
    order_.push_back({Work::backward, static_cast<std::int32_t>(stage), static_cast<std::int32_t>(form)});
  }

  void write(std::size_t s, std::size_t t, std::size_t held_form, std::int32_t m) {
    const Beginning begin = best_beginning(s, t, held_form, m);
    if (begin.kind == Beginning::Kind::keep) {
      const bool is_held = s == t && held_form != Asked::kFresh;
      if (!is_held) forward(s, static_cast<std::int32_t>(begin.form), false);
      if (s < t) write(s + 1, t, held_form, m - begin.taken);
      backward(s, begin.form);
      return;
    }
    for (std::size_t stage = s; stage < begin.at; ++stage) forward(stage, ChainStep::kOutputOnly, stage > s);
    const std::int32_t left = std::min(top_, m + begin.given);
    if (begin.kind == Beginning::Kind::check) {
      write(begin.at, t, held_form, m - begin.taken);
      write(s, begin.at - 1, Asked::kFresh, left);
      return;
    }
    forward(begin.at, static_cast<std::int32_t>(begin.form), true);
    write(begin.at + 1, t, held_form, m - begin.taken);
    write(s, begin.at, begin.form, left);
  }

  RotorOptions options_;
  std::int64_t slot_ = 1;  // bytes
  std::int32_t top_ = 0;   // slots of free memory
  std::size_t width_ = 0;
  std::size_t most_forms_ = 1;
  std::vector<Stage> stages_;
  std::vector<std::size_t> number_;  // by first and last stage: of the run, the same for runs of equal stages
  std::size_t runs_ = 0;
  std::vector<float> nothing_;  // the table of what takes no time
  std::vector<float> fresh_;
  std::vector<float> held_;
  std::vector<std::int32_t> least_fresh_;  // slots from which on a run fits
  std::vector<std::int32_t> least_held_;
  ChainOrder order_;
};

RotorTable::RotorTable(const Chain& chain, std::int64_t memory, const RotorOptions& options)
    : programme_(std::make_unique<Programme>(chain, memory, options)) {
  programme_->run();
}

RotorTable::~RotorTable() = default;

bool RotorTable::fits(const Chain& chain, std::int64_t memory, const RotorOptions& options) {
  return memory >= chain.input && Programme(chain, memory, options).fits();
}

double RotorTable::time(std::size_t first, std::size_t last, std::int64_t free) const { return programme_->time(first, last, free); }

ChainOrder RotorTable::order(std::size_t first, std::size_t last, std::int64_t free) const { return programme_->order(first, last, free); }

std::optional<ChainOrder> fastest_order(const Chain& chain, std::int64_t memory, const RotorOptions& options) {
  const RotorTable table(chain, memory, options);
  const std::int64_t free = memory - chain.input;
  const std::size_t last = chain.stages.size() - 1;
  if (table.time(0, last, free) == std::numeric_limits<double>::infinity()) return std::nullopt;
  return table.order(0, last, free);
}

std::int64_t least_memory(const Chain& chain, const RotorOptions& options) {
  std::int64_t enough = replay(chain, keep_all(chain)).peak;
  while (!RotorTable::fits(chain, enough, options)) enough += enough / options.slots + 1;
  std::int64_t too_little = 0;
  while (enough - too_little > std::max<std::int64_t>(1, enough / options.slots)) {
    const std::int64_t middle = too_little + (enough - too_little) / 2;
    (RotorTable::fits(chain, middle, options) ? enough : too_little) = middle;
  }
  return enough;
}

}  // namespace plimsoll::solvers
