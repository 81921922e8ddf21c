#include "strategy/schedules/verify.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "strategy/schedules/simulate.h"

namespace plimsoll::strategy::schedules {

namespace {

constexpr std::size_t kMostProblems = 12;
constexpr std::size_t kKindsOfWork = 6;
constexpr std::int32_t kAbsent = -1;

class Verifier {
 public:
  explicit Verifier(const Schedule& schedule)
      : schedule_(schedule), pairs_(static_cast<std::size_t>(schedule.shape.stages() * schedule.shape.all_micro_batches())) {
    for (Places& places : places_) places.assign(pairs_, {kAbsent, kAbsent});
  }

  std::vector<std::string> run() {
    if (static_cast<std::int64_t>(schedule_.ranks.size()) != schedule_.shape.ranks) {
      problems_.push_back(fmt::format("found orders for {} ranks, expected {}", schedule_.ranks.size(), schedule_.shape.ranks));
      return problems_;
    }
    for_all_items([&](std::int32_t rank, std::int32_t i, const Item& item) { place(rank, i, item); });
    if (problems_.empty()) check_complete();
    if (problems_.empty()) check_joined();
    if (problems_.empty()) check_local_order();
    if (problems_.empty()) check_versions();
    if (problems_.empty()) check_progress();
    return std::move(problems_);
  }

 private:
  struct Place {
    std::int32_t rank = kAbsent;
    std::int32_t item = kAbsent;
  };
  using Places = std::vector<Place>;

  template <typename Visit>
  void for_all_items(const Visit& visit) {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::vector<Item>& items = schedule_.ranks[rank];
      for (std::size_t i = 0; i < items.size() && problems_.size() < kMostProblems; ++i)
        visit(static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i), items[i]);
    }
  }

  void against(std::int32_t rank, std::int32_t i, std::string_view reason) {
    if (problems_.size() >= kMostProblems) return;
    const Item& item = schedule_.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
    problems_.push_back(fmt::format("rank {}, item {} ({}): {}", rank, i, describe(item), reason));
  }

  std::size_t at(std::int32_t stage, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(stage * schedule_.shape.all_micro_batches() + micro_batch);
  }
  Place& place_of(Work work, const Item& item) { return places_[static_cast<std::size_t>(work)][at(item.stage, item.micro_batch)]; }

  void place(std::int32_t rank, std::int32_t i, const Item& item);
  void check_complete();
  void check_joined();
  void check_local_order();
  void check_versions();
  void check_progress();

  const Schedule& schedule_;
  std::size_t pairs_;
  std::array<Places, kKindsOfWork> places_;
  std::vector<std::string> problems_;
};

void Verifier::place(std::int32_t rank, std::int32_t i, const Item& item) {
  const Shape& shape = schedule_.shape;
  if (item.version < 0 || item.version > shape.batches) {
    return against(rank, i, fmt::format("version {} of {} batches, expected 0 to {}", item.version, shape.batches, shape.batches));
  }
  if (item.work == Work::update) return;
  if (item.stage < 0 || item.stage >= shape.stages())
    return against(rank, i, fmt::format("no such stage, expected 0 to {}", shape.stages() - 1));
  if (item.micro_batch < 0 || item.micro_batch >= shape.all_micro_batches())
    return against(rank, i, fmt::format("no such micro-batch, expected 0 to {}", shape.all_micro_batches() - 1));
  if (const std::int32_t owner = schedule_.rank_of(item.stage, item.micro_batch); owner != rank)
    return against(rank, i, fmt::format("the stage is on rank {}", owner));
  Place& place = place_of(item.work, item);
  if (place.item != kAbsent) return against(rank, i, fmt::format("a second time, after item {}", place.item));
  place = {rank, i};
}

void Verifier::check_complete() {
  const auto missing = [&](Work work, const Item& pair) {
    if (problems_.size() >= kMostProblems) return;
    Item item = pair;
    item.work = work;
    problems_.push_back(fmt::format("rank {}: no {}", schedule_.rank_of(pair.stage, pair.micro_batch), describe(item)));
  };
  for (std::int32_t stage = 0; stage < schedule_.shape.stages(); ++stage) {
    for (std::int32_t i = 0; i < schedule_.shape.all_micro_batches(); ++i) {
      const Item pair{.stage = stage, .micro_batch = i};
      const Place whole = place_of(Work::backward, pair);
      const Place input = place_of(Work::backward_input, pair);
      const Place weight = place_of(Work::backward_weight, pair);
      const Place part = input.item != kAbsent ? input : weight;
      if (place_of(Work::forward, pair).item == kAbsent) missing(Work::forward, pair);
      if (whole.item != kAbsent && part.item != kAbsent) {
        against(part.rank, part.item, fmt::format("a second time, after the whole backward as item {}", whole.item));
      } else if (whole.item == kAbsent && part.item == kAbsent) {
        missing(Work::backward, pair);
      } else if (whole.item == kAbsent && input.item == kAbsent) {
        missing(Work::backward_input, pair);
      } else if (whole.item == kAbsent && weight.item == kAbsent) {
        missing(Work::backward_weight, pair);
      }
    }
  }
}

void Verifier::check_joined() {
  for_all_items([&](std::int32_t rank, std::int32_t i, const Item& item) {
    if (!item.joined) return;
    const std::vector<Item>& items = schedule_.ranks[static_cast<std::size_t>(rank)];
    if (item.work == Work::update || static_cast<std::size_t>(i) + 1 == items.size() ||
        items[static_cast<std::size_t>(i) + 1].work == Work::update) {
      against(rank, i, "joined with nothing that could run beside it");
    }
  });
}

// On its own rank a piece comes after the forward and, for later parts, after what made its input.
void Verifier::check_local_order() {
  for_all_items([&](std::int32_t rank, std::int32_t i, const Item& item) {
    const auto after = [&](Work work, std::string_view what) {
      const Place before = place_of(work, item);
      if (before.item == kAbsent || before.item < i) return;
      against(rank, i, fmt::format("before its {}, which is item {}", what, before.item));
    };
    if (item.work == Work::update || item.work == Work::forward) return;
    after(Work::forward, "forward");
    if (is_backward(item.work)) after(Work::recompute, "recompute");
    if (item.work == Work::backward_weight) after(Work::backward_input, "backward_input");
  });
}

void Verifier::check_versions() {
  const Shape& shape = schedule_.shape;
  for (std::size_t r = 0; r < schedule_.ranks.size() && problems_.size() < kMostProblems; ++r) {
    const std::vector<Item>& items = schedule_.ranks[r];
    const auto rank = static_cast<std::int32_t>(r);
    std::vector<std::int64_t> owed(static_cast<std::size_t>(shape.batches), 0);  // gradients of each batch still to come
    for (const Item& item : items) {
      if (item.work == Work::backward || item.work == Work::backward_weight)
        ++owed[static_cast<std::size_t>(item.micro_batch / shape.micro_batches)];
    }
    std::int32_t newest = 0;
    for (std::size_t k = 0; k < items.size(); ++k) {
      const Item& item = items[k];
      const auto i = static_cast<std::int32_t>(k);
      if (item.work == Work::update) {
        if (item.version != newest + 1) {
          against(rank, i, fmt::format("expected version {} next", newest + 1));
        } else if (const std::int64_t left = owed[static_cast<std::size_t>(newest)]; left > 0) {
          against(rank, i,
                  fmt::format("{} backward{} of batch {} {} still to come", left, left == 1 ? "" : "s", newest, left == 1 ? "is" : "are"));
        }
        ++newest;
        if (newest > shape.batches) break;
        continue;
      }
      if (item.version > newest) against(rank, i, fmt::format("uses version {}, but the rank has made {} by then", item.version, newest));
      const Place forward = place_of(Work::forward, item);
      const std::int32_t used = items[static_cast<std::size_t>(forward.item)].version;
      if (item.version != used) against(rank, i, fmt::format("uses version {}, but its forward used {}", item.version, used));
      if (item.work == Work::backward || item.work == Work::backward_weight)
        --owed[static_cast<std::size_t>(item.micro_batch / shape.micro_batches)];
    }
    if (newest < shape.batches && problems_.size() < kMostProblems)
      problems_.push_back(fmt::format("rank {}: ends with version {}, expected {} updates", rank, newest, shape.batches));
  }
}

// Ranks that wait for each other: from one of them, follow what it waits for until a rank comes up again.
void Verifier::check_progress() {
  const std::vector<Blocked> blocked = find_blocked(schedule_);
  if (blocked.empty()) return;
  std::vector<const Blocked*> of_rank(schedule_.ranks.size(), nullptr);
  for (const Blocked& one : blocked) of_rank[static_cast<std::size_t>(one.rank)] = &one;
  const auto next = [&](const Blocked& one) {
    return of_rank[static_cast<std::size_t>(schedule_.rank_of(one.waits_for.stage, one.waits_for.micro_batch))];
  };
  std::vector<bool> seen(schedule_.ranks.size(), false);
  const Blocked* first = &blocked[0];
  while (first != nullptr && !seen[static_cast<std::size_t>(first->rank)]) {
    seen[static_cast<std::size_t>(first->rank)] = true;
    first = next(*first);
  }
  const Blocked* one = first != nullptr ? first : &blocked[0];
  std::size_t left = kMostProblems;
  do {
    const std::int32_t other = schedule_.rank_of(one->waits_for.stage, one->waits_for.micro_batch);
    against(one->rank, static_cast<std::int32_t>(one->item),
            fmt::format("waits for ever for the {}, which rank {} has behind something that waits too", describe(one->waits_for), other));
    one = next(*one);
  } while (one != nullptr && one != first && --left > 0);
}

}  // namespace

std::vector<std::string> problems_of(const Schedule& schedule) { return Verifier(schedule).run(); }

void require_valid(const Schedule& schedule) {
  const std::vector<std::string> problems = problems_of(schedule);
  if (!problems.empty()) base::not_legal("the schedule \"{}\" cannot be run: {}", schedule.name, fmt::join(problems, "; "));
}

}  // namespace plimsoll::strategy::schedules
