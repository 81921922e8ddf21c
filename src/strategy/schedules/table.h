// The schedules by name: what each is, where it can be used, and how it is made.
//
//   const Schedule schedule = build("1f1b", {.ranks = 4, .micro_batches = 8});
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategy/schedules/schedule.h"

namespace plimsoll::strategy::schedules {

struct Kind {
  std::string_view name;
  std::string_view about;
  std::string_view bubble = "";  // in closed form, where the three parts take equal times and messages none; empty: 0, or none known
  bool chunked = false;          // takes more than one stage per rank
  bool asynchronous = false;     // batches follow one another without a flush; weights have versions
  bool recomputes = false;       // has recomputes of its own
  bool splits_backward = false;  // gradients of weights come apart from those of inputs
  bool barrier_free = false;     // flushes, but no rank waits for others to begin the next batch
  bool drawn_only = false;       // nothing runs it
  bool searched = false;         // the planner tries it where the schedule is open
  // How many pieces of activations (of one micro-batch in one of its stages) a rank holds at most; null: no closed form is known.
  std::int64_t (*holds)(const Shape& shape, std::int64_t rank) = nullptr;
  // Of how many pieces on, m v, a rank begins a micro-batch with every one that ends, for a while; null: with twice what it holds and
  // p v more; kNever where it first begins all of them.
  std::int64_t (*steady_from)(const Shape& shape, std::int64_t rank) = nullptr;
  // Reasons beyond those that hold for all schedules; null: none.
  void (*add_reasons)(const Shape& shape, std::vector<std::string>& reasons) = nullptr;
  Schedule (*make)(const Shape& shape) = nullptr;

  bool takes_batches() const { return asynchronous || barrier_free; }
  // What a rank keeps can be fitted to its memory before the schedule is laid out: backward passes come whole.
  bool fits_memory() const { return holds != nullptr && !splits_backward; }
  bool is_steady(const Shape& shape, std::int64_t rank) const;
};

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// What a pipeline runs by where nobody says otherwise.
inline constexpr std::string_view kUsual = "1f1b";

std::span<const Kind> kinds();

// bad_input that names the nearest when there is none of that name.
const Kind& find_kind(std::string_view name);
// nullptr: it is the name of a file.
const Kind* kind_named(std::string_view name);

// Every reason against the shape, each with what was found and the nearest that would do; empty: the schedule can be made.
std::vector<std::string> reasons_against(const Kind& kind, const Shape& shape);
// Those that hold for schedules from files too.
std::vector<std::string> reasons_against(const Shape& shape);

// not_legal with all reasons where there are some.
void require_legal(std::string_view name, const std::vector<std::string>& reasons);
Schedule build(std::string_view name, const Shape& shape);

}  // namespace plimsoll::strategy::schedules
