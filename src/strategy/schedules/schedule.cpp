#include "strategy/schedules/schedule.h"

#include <fmt/format.h>

namespace plimsoll::strategy::schedules {

std::int32_t rank_of(const Shape& shape, Placement placement, std::int32_t stage, std::int32_t micro_batch) {
  const auto ranks = static_cast<std::int32_t>(shape.ranks);
  const std::int32_t up = stage % ranks;
  const std::int32_t down = ranks - 1 - up;
  switch (placement) {
    case Placement::looped: return up;
    case Placement::vee: return stage / ranks % 2 == 0 ? up : down;
    case Placement::both_ways: return micro_batch < shape.all_micro_batches() / 2 ? up : down;
  }
  return up;
}

std::int32_t Schedule::rank_of(std::int32_t stage, std::int32_t micro_batch) const {
  return schedules::rank_of(shape, placement, stage, micro_batch);
}

std::string_view name_of(Work work) {
  switch (work) {
    case Work::forward: return "forward";
    case Work::backward: return "backward";
    case Work::backward_input: return "backward_input";
    case Work::backward_weight: return "backward_weight";
    case Work::recompute: return "recompute";
    case Work::update: return "update";
  }
  return "?";
}

std::string describe(const Item& item) {
  if (item.work == Work::update) return fmt::format("update to version {}", item.version);
  return fmt::format("{} of micro-batch {} in stage {}", name_of(item.work), item.micro_batch, item.stage);
}

std::string short_name(const Item& item) {
  constexpr std::string_view kLetters = "FBIWRU";
  const char letter = kLetters[static_cast<std::size_t>(item.work)];
  if (item.work == Work::update) return fmt::format("{}{}", letter, item.version);
  return fmt::format("{}{}.{}{}", letter, item.stage, item.micro_batch, item.joined ? "+" : "");
}

std::string short_names(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : " ") + short_name(item);
  return text;
}

Schedule with_recompute(Schedule schedule) {
  for (std::vector<Item>& items : schedule.ranks) {
    std::vector<Item> longer;
    longer.reserve(items.size() * 3 / 2);
    bool before_joined = false;
    for (const Item& item : items) {
      if (is_backward(item.work)) {
        const bool still_there = !longer.empty() && longer.back().work == Work::forward && longer.back().stage == item.stage &&
                                 longer.back().micro_batch == item.micro_batch;
        Item again = item;
        again.work = Work::recompute;
        again.joined = false;
        // Before a joined forward, not between it and its backward: a piece cannot need another part of itself.
        if (!still_there) longer.insert(longer.end() - (before_joined ? 1 : 0), again);
      }
      longer.push_back(item);
      before_joined = item.joined;
    }
    items = std::move(longer);
  }
  return schedule;
}

}  // namespace plimsoll::strategy::schedules
