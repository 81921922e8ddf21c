#include "solvers/brute_force.h"

#include <map>
#include <queue>

namespace plimsoll::solvers {

namespace {

// What is in memory: outputs kept alone, forms, and how many stages still have to go back.
struct State {
  std::uint32_t outputs = 0;
  std::vector<std::int8_t> forms;
  std::int8_t left = 0;

  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(const Chain& chain, std::int64_t memory, Drops drops) : chain_(chain), memory_(memory), drops_(drops) {}

  std::optional<double> run() {
    const auto count = chain_.stages.size();
    visit({0, std::vector<std::int8_t>(count, -1), static_cast<std::int8_t>(count)}, 0.0);
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (time > best_.at(state)) continue;
      if (state.left == 0) return time;
      step_from(state, time);
    }
    return std::nullopt;
  }

 private:
  bool has(const State& state, std::size_t stage) const { return (state.outputs >> stage & 1u) != 0 || state.forms[stage] >= 0; }
  bool has_input(const State& state, std::size_t stage) const { return stage == 0 || has(state, stage - 1); }

  std::int64_t bytes(const State& state) const {
    std::int64_t sum = chain_.input;
    for (std::size_t stage = 0; stage < chain_.stages.size(); ++stage) {
      const ChainStage& known = chain_.stages[stage];
      if ((state.outputs >> stage & 1u) != 0) sum += known.output;
      if (state.forms[stage] >= 0) sum += known.forms[static_cast<std::size_t>(state.forms[stage])].saved;
      if (stage >= static_cast<std::size_t>(state.left)) sum += known.weight_gradients;
    }
    return state.left == 0 ? sum : sum + chain_.stages[static_cast<std::size_t>(state.left) - 1].gradient;
  }

  void visit(const State& state, double time) {
    const auto [found, fresh] = best_.try_emplace(state, time);
    if (!fresh && found->second <= time) return;
    found->second = time;
    queue_.push({time, state});
  }

  void step_from(const State& state, double time) {
    for (std::size_t stage = 0; stage < chain_.stages.size(); ++stage) {
      forward(state, stage, time);
      drop(state, stage, time);
    }
    backward(state, static_cast<std::size_t>(state.left) - 1, time);
  }

  void forward(const State& state, std::size_t stage, double time) {
    const ChainStage& known = chain_.stages[stage];
    if (!has_input(state, stage)) return;
    const std::int64_t now = bytes(state) + known.temporary;
    if (!has(state, stage) && now + known.output <= memory_) {
      State next = state;
      next.outputs |= 1u << stage;
      visit(next, time + known.forward);
    }
    for (std::size_t form = 0; form < known.forms.size(); ++form) {
      if (state.forms[stage] >= 0 || now + known.forms[form].saved > memory_) continue;
      State next = state;
      next.forms[stage] = static_cast<std::int8_t>(form);
      const bool again = stage + 1 == static_cast<std::size_t>(state.left) && stage + 1 < chain_.stages.size();
      visit(next, time + (again ? known.forward_again : known.forward));
    }
  }

  void backward(const State& state, std::size_t stage, double time) {
    const ChainStage& known = chain_.stages[stage];
    if (state.forms[stage] < 0 || !has_input(state, stage)) return;
    const ChainForm& form = known.forms[static_cast<std::size_t>(state.forms[stage])];
    if (bytes(state) + form.temporary + known.weight_gradients > memory_) return;
    State next = state;
    next.forms[stage] = -1;
    next.outputs &= ~(1u << stage);
    next.left = static_cast<std::int8_t>(stage);
    visit(next, time + form.backward);
  }

  void drop(const State& state, std::size_t stage, double time) {
    const bool pinned = drops_ == Drops::checkpoints && stage + 1 < chain_.stages.size() && state.forms[stage + 1] >= 0;
    if ((state.outputs >> stage & 1u) != 0 && (!pinned || state.forms[stage] >= 0)) {
      State next = state;
      next.outputs &= ~(1u << stage);
      visit(next, time);
    }
    if (state.forms[stage] >= 0 && (!pinned || (state.outputs >> stage & 1u) != 0)) {
      State next = state;
      next.forms[stage] = -1;
      visit(next, time);
    }
  }

  struct Later {
    bool operator()(const std::pair<double, State>& a, const std::pair<double, State>& b) const { return a.first > b.first; }
  };

  const Chain& chain_;
  std::int64_t memory_;
  Drops drops_;
  std::map<State, double> best_;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, Later> queue_;
};

}  // namespace

std::optional<double> brute_force(const Chain& chain, std::int64_t memory, Drops drops) { return Search(chain, memory, drops).run(); }

}  // namespace plimsoll::solvers
