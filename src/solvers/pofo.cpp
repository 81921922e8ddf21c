// States at each border between segments are extended by every segment that can follow; of states that end alike, those that need as
// much memory, have as much to move and have taken as long as another are dropped. Short chains are solved exactly; on long ones
// states that differ by less than a part in kCells of the memory count as one, and the fastest of them stay.
#include "solvers/pofo.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "base/error.h"

namespace plimsoll::solvers {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kShort = 8;  // stages of a chain that is solved exactly
constexpr double kCells = 20.0;
constexpr std::size_t kMostStates = 200;

double wait_for(double bytes, double rate) {
  if (bytes <= 0.0) return 0.0;
  return rate > 0.0 ? bytes / rate : kNever;
}

}  // namespace

JointProgramme::JointProgramme(const Chain& chain, std::int64_t memory, const ChainLink& link, const RotorOptions& options)
    : chain_(chain), memory_(memory), link_(link), table_(chain, memory, options), later_(chain.stages.size(), 0) {
  for (std::size_t index = chain.stages.size() - 1; index-- > 0;)
    later_[index] = later_[index + 1] + chain.stages[index + 1].weight_gradients;
}

// Goes to the beginning of a segment: an input that nobody keeps yet is kept with it.
JointProgramme::State JointProgramme::start(const State& before, std::int32_t first, bool leaves) const {
  State state = before;
  const std::int64_t input = input_of(before, first);
  if (leaves) {
    state.leaving += static_cast<double>(input);
  } else {
    state.kept += input;
  }
  return state;
}

std::int64_t JointProgramme::input_of(const State& before, std::int32_t first) const {
  return before.again ? chain_.stages[static_cast<std::size_t>(first) - 1].output : 0;
}

// One forward pass of the segment.
bool JointProgramme::go_forward(State& state, const State& before, const ChainSegment& segment, std::int32_t index) const {
  const ChainStage& stage = chain_.stages[static_cast<std::size_t>(index)];
  const std::int64_t before_it = index > 0 ? chain_.stages[static_cast<std::size_t>(index) - 1].output : 0;
  const bool keeps = segment.form != ChainStep::kOutputOnly;
  std::int64_t need = stage.temporary + (keeps ? stage.forms[static_cast<std::size_t>(segment.form)].saved : stage.output);
  if (index > segment.first) need += before_it;
  // What the first pass reads cannot go before it is read.
  const bool reads_leaving = index == segment.first && index > 0 && (before.again ? segment.leaves : before.left);
  const double room = static_cast<double>(memory_ - chain_.input - chain_.stages.back().gradient - state.kept - need);
  if (room < (reads_leaving ? static_cast<double>(before_it) : 0.0)) return false;
  const double wait = wait_for(state.leaving - room, link_.out);
  if (wait == kNever) return false;
  state.time += wait + stage.forward;
  state.waiting += wait;
  state.leaving = std::max(0.0, std::min(state.leaving, room) - link_.out * stage.forward);
  return true;
}

// What a segment that runs again may use.
std::int64_t JointProgramme::free_for(const State& before, const State& state, const ChainSegment& segment, std::int64_t item) const {
  const double coming = segment.waits ? before.early : before.back;
  return memory_ - chain_.input - state.kept - (segment.leaves ? item : 0) - static_cast<std::int64_t>(coming + 0.999);
}

// The backward passes of a segment, after which `before.back` bytes of earlier segments are there.
bool JointProgramme::go_back(State& state, const State& before, const ChainSegment& segment, std::int64_t item) const {
  double coming = before.back - before.early;  // while the segment goes back
  double time = 0.0;
  if (segment.form == ChainStep::kOutputOnly) {
    time = table_.time(static_cast<std::size_t>(segment.first), static_cast<std::size_t>(segment.last),
                       free_for(before, state, segment, item));
    if (time == kNever) return false;
    if (segment.waits) {
      const double wait = wait_for(coming, link_.in);
      if (wait == kNever) return false;
      state.time += wait;
      state.waiting += wait;
      coming = 0.0;
    }
  } else {
    const auto index = static_cast<std::size_t>(segment.first);
    const ChainStage& stage = chain_.stages[index];
    const ChainForm& form = stage.forms[static_cast<std::size_t>(segment.form)];
    const std::int64_t need = stage.gradient + later_[index] + stage.weight_gradients + form.temporary;
    const double room = static_cast<double>(memory_ - chain_.input - state.kept - (segment.leaves ? item : 0) - need) - before.early;
    if (room < 0.0) return false;
    const double wait = wait_for(coming - room, link_.in);
    if (wait == kNever) return false;
    state.time += wait;
    state.waiting += wait;
    coming = std::min(coming, room);
    time = form.backward;
  }
  state.time += time;
  state.back = before.early + std::max(0.0, coming - link_.in * time) + static_cast<double>(segment.leaves ? item : 0);
  return true;
}

std::optional<JointProgramme::State> JointProgramme::behind(const State& before, const ChainSegment& segment) const {
  State state = start(before, segment.first, segment.leaves);
  for (std::int32_t index = segment.first; index <= segment.last; ++index) {
    if (!go_forward(state, before, segment, index)) return std::nullopt;
  }
  return ended(state, before, segment);
}

// Behind the forward passes of a segment, with its backward passes.
std::optional<JointProgramme::State> JointProgramme::ended(State state, const State& before, const ChainSegment& segment) const {
  const bool keeps = segment.form != ChainStep::kOutputOnly;
  const std::int64_t input = input_of(before, segment.first);
  const std::int64_t saved =
      keeps ? chain_.stages[static_cast<std::size_t>(segment.first)].forms[static_cast<std::size_t>(segment.form)].saved : 0;
  if (segment.leaves && input + saved == 0) return std::nullopt;
  if (segment.leaves) {
    state.leaving += static_cast<double>(saved);
    state.moved += input + saved;
  } else {
    state.kept += saved;
  }
  if (!go_back(state, before, segment, input + saved)) return std::nullopt;
  state.early = keeps && segment.leaves ? static_cast<double>(input + saved) : 0.0;
  state.again = !keeps;
  state.form = segment.form;
  state.left = segment.leaves;
  state.segment = segment;
  return state;
}

// Between the passes: what still has to go goes, what must be back comes.
double JointProgramme::finish(State& state) const {
  const double wait = wait_for(state.leaving, link_.out) + wait_for(state.back, link_.in);
  state.waiting += wait;
  return state.time += wait;
}

// The states at one border. Of a long chain, one for each cell of a grid.
class JointProgramme::Border {
 public:
  Border(double cell, bool exact) : cell_(cell), exact_(exact) {}

  std::vector<State> states;

  void add(const State& state) {
    if (!exact_) {
      const auto cell = [&](double bytes) { return static_cast<std::int64_t>(bytes / cell_ + 0.5); };
      const std::int64_t end = state.again ? 0 : 2 + 2 * state.form + (state.left ? 1 : 0);
      const std::array<std::int64_t, 4> key{cell(static_cast<double>(state.kept)), cell(state.leaving), cell(state.back), end};
      const auto [found, fresh] = at_.try_emplace(key, states.size());
      if (!fresh) {
        if (state.time < states[found->second].time) states[found->second] = state;
        return;
      }
    }
    states.push_back(state);
  }

  // Of states that end alike, only those that no other is as good as in everything stay.
  void prune() {
    std::stable_sort(states.begin(), states.end(), [](const State& a, const State& b) { return a.time < b.time; });
    std::vector<State> stay;
    for (const State& state : states) {
      if (std::none_of(stay.begin(), stay.end(), [&](const State& other) { return as_good(other, state); })) stay.push_back(state);
    }
    states = std::move(stay);
    if (exact_ || states.size() <= kMostStates) return;
    // The fastest, and those with most memory left for what comes.
    const auto taken = [](const State& state) { return static_cast<double>(state.kept) + std::max(state.leaving, state.back); };
    std::stable_sort(states.begin() + kMostStates / 2, states.end(), [&](const State& a, const State& b) { return taken(a) < taken(b); });
    states.resize(kMostStates);
  }

 private:
  static bool as_good(const State& a, const State& b) {
    return a.again == b.again && a.left == b.left && (a.again || a.form == b.form) && a.kept <= b.kept && a.leaving <= b.leaving &&
           a.back <= b.back && a.early <= b.early && a.back - a.early <= b.back - b.early;
  }

  double cell_;
  bool exact_;
  std::map<std::array<std::int64_t, 4>, std::size_t> at_;
};

void JointProgramme::extend(std::vector<Border>& at, std::size_t boundary) const {
  const auto first = static_cast<std::int32_t>(boundary);
  const auto count = static_cast<std::int32_t>(chain_.stages.size());
  const bool linked = link_.out > 0.0 && link_.in > 0.0;
  for (std::size_t parent = 0; parent < at[boundary].states.size(); ++parent) {
    const State before = at[boundary].states[parent];
    const auto add = [&](std::optional<State> state) {
      if (!state) return;
      state->parent = static_cast<std::int32_t>(parent);
      at[static_cast<std::size_t>(state->segment.last) + 1].add(*state);
    };
    for (const bool leaves : {false, true}) {
      if (leaves && !linked) continue;
      for (std::int32_t form = 0; form < static_cast<std::int32_t>(chain_.stages[boundary].forms.size()); ++form)
        add(behind(before, {.first = first, .last = first, .form = form, .leaves = leaves}));
      ChainSegment segment{.first = first, .last = first, .leaves = leaves};
      State state = start(before, first, leaves);
      // The last stage holds the loss: there is nothing between its passes.
      for (; segment.last + 1 < count && go_forward(state, before, segment, segment.last); ++segment.last) {
        add(ended(state, before, segment));
        if (before.back <= before.early) continue;
        ChainSegment waiting = segment;
        waiting.waits = true;
        add(ended(state, before, waiting));
      }
    }
  }
}

std::optional<JointOrder> JointProgramme::fastest() const {
  const std::size_t count = chain_.stages.size();
  std::vector<Border> at(count + 1, Border(static_cast<double>(memory_) / kCells, count <= kShort));
  at[0].add({});
  for (std::size_t boundary = 0; boundary < count; ++boundary) {
    at[boundary].prune();
    extend(at, boundary);
  }
  const State* best = nullptr;
  double least = kNever;
  for (State& state : at[count].states) {
    const double time = finish(state);
    if (time >= least) continue;
    least = time;
    best = &state;
  }
  if (best == nullptr) return std::nullopt;
  JointOrder joint{.segments = {}, .time = best->time, .waiting = best->waiting, .moved = best->moved};
  for (const State* state = best; state->parent >= 0;
       state = &at[static_cast<std::size_t>(state->segment.first)].states[static_cast<std::size_t>(state->parent)])
    joint.segments.push_back(state->segment);
  std::reverse(joint.segments.begin(), joint.segments.end());
  return joint;
}

std::optional<JointOrder> JointProgramme::cost_of(const std::vector<ChainSegment>& segments) const {
  State state;
  for (const ChainSegment& segment : segments) {
    const std::optional<State> next = behind(state, segment);
    if (!next) return std::nullopt;
    state = *next;
  }
  if (finish(state) == kNever) return std::nullopt;
  return JointOrder{.segments = segments, .time = state.time, .waiting = state.waiting, .moved = state.moved};
}

ChainOrder JointProgramme::order_of(const JointOrder& joint) const {
  ChainOrder order;
  std::vector<State> states{State{}};
  bool again = false;
  for (const ChainSegment& segment : joint.segments) {
    for (std::int32_t stage = segment.first; stage <= segment.last; ++stage) {
      // What a run leaves behind on its way is not kept; its own input is, where it is not in a form before it.
      order.push_back({ChainStep::Work::forward, stage, segment.form, stage > segment.first});
    }
    again = segment.form == ChainStep::kOutputOnly;
    const std::optional<State> next = behind(states.back(), segment);
    PLIMSOLL_CHECK(next.has_value(), "segments that do not fit");
    states.push_back(*next);
  }
  PLIMSOLL_CHECK(!again, "the last stage has nothing between its passes");
  for (std::size_t index = joint.segments.size(); index-- > 0;) {
    const ChainSegment& segment = joint.segments[index];
    if (segment.form != ChainStep::kOutputOnly) {
      order.push_back({ChainStep::Work::backward, segment.first, segment.form});
      continue;
    }
    const std::int64_t item = states[index].again ? chain_.stages[static_cast<std::size_t>(segment.first) - 1].output : 0;
    const ChainOrder run = table_.order(static_cast<std::size_t>(segment.first), static_cast<std::size_t>(segment.last),
                                        free_for(states[index], states[index + 1], segment, item));
    order.insert(order.end(), run.begin(), run.end());
  }
  return order;
}

}  // namespace plimsoll::solvers
