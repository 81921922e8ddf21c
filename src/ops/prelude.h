// What comes before the update of a parameter whose rule must know something of the whole of it (rule.h): sums over its elements, or the
// parameter's step as a matrix, which is made orthogonal.
//
//   sums = lamb_prelude(scalars, gradient, weight, states..)         of each piece; merge_sums adds up those of pieces on several ranks
//   lamb_update(scalars, gradient, weight, states.., sums)
//
//   step = muon_prelude(scalars, gradient, weight, states..)         of each piece; whoever cut the matrix puts it together
//   whole = orthogonalize(step)
//   muon_update(scalars, gradient, weight, states.., whole)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "ops/update.h"

namespace plimsoll::ops {

// What the prelude of a rule makes for a piece of that shape.
base::TensorType prelude_type(const UpdateRule& rule, const base::Shape& shape);

// (scalars, gradient, weight, states.., [low], [sums]) -> sums u8 or step f32, of this piece. With `into` sums are added to those of
// another piece, in place. counted and shard as in SquaredNorm. It is printed by its rule's name: lamb_prelude(...).
struct UpdatePrelude {
  Update update;  // that it comes before
  bool into = false;
  std::int64_t counted = -1;
  std::int64_t shard = 0;

  static constexpr std::string_view kName = "update_prelude";
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    Update::fields(self.update, visit);
    visit("into", self.into);
    visit("counted", self.counted);
    visit("shard", self.shard);
  }

  static UpdatePrelude by(const UpdateRule& rule) { return {.update = Update::by(rule)}; }
  UpdatePrelude plain() const { return update.rule == nullptr ? UpdatePrelude{} : by(*update.rule); }
  std::string printed_name() const { return update.rule == nullptr ? std::string(kName) : std::string(update.rule->name) + "_prelude"; }
  bool is_sum() const { return update.rule->prelude == Prelude::sums; }

  bool operator==(const UpdatePrelude&) const = default;
};

// (sums of every member, one behind the other) -> their sums.
struct MergeSums {
  std::int64_t members = 1;
  PLIMSOLL_OP("merge_sums") { visit("members", self.members); }
  bool operator==(const MergeSums&) const = default;
};

inline constexpr std::array kNewtonSchulz{3.4445, -4.7750, 2.0315};
// What a norm counts as at least.
inline constexpr double kLeastNorm = 1e-7;

// (x (R, C) f32) -> (R, C): the orthogonal matrix nearest to x, nearly: its singular values are between 0.68 and 1.13. X = x / |x|; then
// `steps` times A = X X', X = 3.4445 X + (-4.7750 A + 2.0315 A A) X. The result is times `match_rms` sqrt(max(R, C)), or, where that is 0,
// times sqrt(max(1, R / C)).
// Rows of several matrices may alternate: `parts` says how many of each there are in a unit (first, second, third, ..; {} is one matrix),
// and each is made orthogonal by itself. In packed heads those are queries, keys and values.
struct Orthogonalize {
  std::int64_t steps = 5;
  double match_rms = 0.0;
  base::Shape parts{};
  PLIMSOLL_OP("orthogonalize") {
    visit("steps", self.steps);
    visit("match_rms", self.match_rms);
    visit("parts", self.parts);
  }
  std::vector<std::int64_t> rows_in_unit() const {
    std::vector<std::int64_t> rows;
    for (int part = 0; part < parts.rank(); ++part) rows.push_back(parts[part]);
    return rows.empty() ? std::vector<std::int64_t>{1} : rows;
  }
  std::int64_t unit() const { return parts.rank() == 0 ? 1 : total(); }
  // Of one of its matrices.
  double scale_of(std::int64_t rows, std::int64_t columns) const {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    return match_rms > 0.0 ? match_rms * std::sqrt(std::max(r, c)) : std::sqrt(std::max(1.0, r / c));
  }
  bool operator==(const Orthogonalize&) const = default;

 private:
  std::int64_t total() const {
    std::int64_t rows = 0;
    for (int part = 0; part < parts.rank(); ++part) rows += parts[part];
    return rows;
  }
};

}  // namespace plimsoll::ops
