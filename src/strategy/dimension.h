// One question that a strategy answers, as a record: its key in the run file, what it means, how its answers are written, when it arises,
// and which answers cannot be run. The run file, its documentation, `explain`, legality and the plan's JSON are loops over the table of
// all records (dimensions.h); planner/space.h says which answers a search tries.
//
// A new key is a member of Strategy, a record in the file of its subject (mesh.cpp, schedule.cpp, ...), and, where a search should choose
// it, its answers in planner/space.{h,cpp}.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "strategy/strategy.h"

namespace plimsoll::strategy {

// ---- forms of answers

inline constexpr std::int64_t kMostRanks = 1'000'000;
inline constexpr std::int64_t kMostBlocks = 100'000;

struct Count {
  std::int64_t Strategy::* at;
  std::int64_t least = 0;
  std::int64_t most = 0;  // that makes sense; 0: no such number
  std::int64_t ceiling = kMostBlocks;
};
struct Flag {
  bool Strategy::* at;
};
// From 0 to 1.
struct Part {
  double Strategy::* at;
};
struct Size {
  base::Bytes Strategy::* at;
};
// A place in the tiers, or shares of several.
struct Tiers {
  TierShare Offload::* at;
};
// One of a few words, by the value of an enumeration.
struct Word {
  std::span<const std::string_view> words;
  std::size_t (*get)(const Strategy& strategy);
  void (*set)(Strategy& strategy, std::size_t word);
};
template <auto kMember, const auto& kWords>
constexpr Word word() {
  return {.words = kWords,
          .get = [](const Strategy& strategy) { return static_cast<std::size_t>(strategy.*kMember); },
          .set = [](Strategy& strategy,
                    std::size_t word) { strategy.*kMember = static_cast<std::remove_cvref_t<decltype(strategy.*kMember)>>(word); }};
}
// What only the reader of run files knows how to read (config/fields_strategy.cpp).
struct ScheduleName {};
struct StageList {};

using Form = std::variant<Count, Flag, Part, Size, Tiers, Word, ScheduleName, StageList>;

// ---- reasons

// Why a strategy cannot be run, each with what was found and the nearest that would do.
class Reasons {
 public:
  template <typename... Args>
  void against(bool holds, fmt::format_string<Args...> reason, Args&&... args) {
    if (holds) found_.push_back(fmt::format(reason, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

// ---- the record

struct Dimension {
  std::string_view key;    // "zero": strategy.zero in the run file
  std::string_view about;  // one sentence
  Form form;
  // (optional) How an absent answer follows from others.
  std::string_view derived = {};
  // A plan lists the answer even where it is the usual one.
  bool listed = false;
  // (optional) Where a given answer means nothing: it "has no use without ..." what `needs` names unless `used`.
  std::string_view needs = {};
  bool (*used)(const Strategy& strategy) = nullptr;
  // (optional) For steps of so many micro-batches.
  void (*add_reasons)(const Strategy& strategy, std::int64_t micro_batches, Reasons& reasons) = nullptr;
};

// ---- words

inline constexpr std::array<std::string_view, 4> kRecomputeWords{"none", "full", "selective", "optimal"};
inline constexpr std::array<std::string_view, 2> kEmbeddingRowsWords{"whole", "disk"};
inline constexpr std::array<std::string_view, 3> kCarryUpdateWords{"auto", "always", "never"};
inline constexpr std::array<std::string_view, 2> kReduceWords{"ring", "main"};

inline std::string_view name_of(Recompute recompute) { return kRecomputeWords.at(static_cast<std::size_t>(recompute)); }

}  // namespace plimsoll::strategy
