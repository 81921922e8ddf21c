#include "solvers/chain.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::solvers {

namespace {

using Work = ChainStep::Work;

// What is in memory between two steps.
class Memory {
 public:
  explicit Memory(const Chain& chain) : chain_(chain), outputs_(chain.stages.size(), false), forms_(chain.stages.size(), kNone) {
    cost_.forwards.resize(chain.stages.size());
    held_ = chain.input + chain.stages.back().gradient;
  }

  void run(const ChainStep& step) {
    const auto index = static_cast<std::size_t>(step.stage);
    PLIMSOLL_CHECK(index < chain_.stages.size() && has_input(index), "stage {} runs without its input", step.stage + 1);
    if (step.work == Work::forward) {
      forward(step, index);
    } else {
      backward(step, index);
    }
  }

  ChainCost finish() {
    PLIMSOLL_CHECK(next_ == 0, "stage {} has no backward pass", next_);
    return std::move(cost_);
  }

 private:
  static constexpr std::int32_t kNone = ChainStep::kOutputOnly;

  bool has_input(std::size_t index) const { return index == 0 || outputs_[index - 1] || forms_[index - 1] != kNone; }

  void need(std::int64_t more) { cost_.peak = std::max(cost_.peak, held_ + more); }

  void free_output(std::size_t index) {
    if (!outputs_[index]) return;
    outputs_[index] = false;
    held_ -= chain_.stages[index].output;
  }

  void forward(const ChainStep& step, std::size_t index) {
    const ChainStage& stage = chain_.stages[index];
    const bool whole = step.form != kNone;
    const std::int64_t made = whole ? stage.forms.at(static_cast<std::size_t>(step.form)).saved : stage.output;
    PLIMSOLL_CHECK(forms_[index] == kNone && !outputs_[index], "stage {} runs again while what it made is kept", step.stage + 1);
    need(made + stage.temporary);
    held_ += made;
    forms_[index] = step.form;
    outputs_[index] = !whole;
    cost_.time += index + 1 == next_ && next_ < chain_.stages.size() ? stage.forward_again : stage.forward;
    ++cost_.forwards[index];
    if (step.frees_input && index > 0) free_output(index - 1);
  }

  void backward(const ChainStep& step, std::size_t index) {
    const ChainStage& stage = chain_.stages[index];
    PLIMSOLL_CHECK(index + 1 == next_, "the backward pass of stage {} comes out of turn", step.stage + 1);
    PLIMSOLL_CHECK(forms_[index] == step.form && step.form != kNone, "stage {} goes back without what it needs", step.stage + 1);
    const ChainForm& form = stage.forms.at(static_cast<std::size_t>(step.form));
    need(form.temporary + stage.weight_gradients);
    held_ += stage.weight_gradients - form.saved - stage.gradient;
    if (index > 0) held_ += chain_.stages[index - 1].gradient;
    forms_[index] = kNone;
    if (index > 0) free_output(index - 1);
    next_ = index;
    cost_.time += form.backward;
  }

  const Chain& chain_;
  std::vector<bool> outputs_;        // kept alone
  std::vector<std::int32_t> forms_;  // kept, or kNone
  std::int64_t held_ = 0;
  std::size_t next_ = chain_.stages.size();  // stages whose backward pass is still to come
  ChainCost cost_;
};

}  // namespace

ChainCost replay(const Chain& chain, const ChainOrder& order) {
  Memory memory(chain);
  for (const ChainStep& step : order) memory.run(step);
  return memory.finish();
}

ChainOrder keep_all(const Chain& chain, std::int32_t form) {
  const auto count = static_cast<std::int32_t>(chain.stages.size());
  const auto form_of = [&](std::int32_t stage) {
    return std::min(form, static_cast<std::int32_t>(chain.stages[static_cast<std::size_t>(stage)].forms.size()) - 1);
  };
  ChainOrder order;
  for (std::int32_t stage = 0; stage < count; ++stage) order.push_back({Work::forward, stage, form_of(stage)});
  for (std::int32_t stage = count; stage-- > 0;) order.push_back({Work::backward, stage, form_of(stage)});
  return order;
}

std::string to_string(const ChainOrder& order) {
  std::string text;
  for (const ChainStep& step : order) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}{}", step.work == Work::forward ? 'F' : 'B', step.stage + 1);
    if (step.work == Work::backward) continue;
    if (step.form == ChainStep::kOutputOnly) {
      text += step.frees_input ? "n" : "ck";
    } else {
      text += fmt::format("e{}{}", step.form, step.frees_input ? "n" : "");
    }
  }
  return text;
}

}  // namespace plimsoll::solvers
