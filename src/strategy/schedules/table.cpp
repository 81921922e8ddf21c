#include "strategy/schedules/table.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "strategy/schedules/builders.h"
#include "strategy/schedules/csv.h"

namespace plimsoll::strategy::schedules {

namespace {

// Pieces of a schedule that are still cheap to hold (16 bytes each, twice): thousands of ranks with thousands of micro-batches.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 23;

void groups_of_ranks(const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.chunks == 1) {
    reasons.push_back("found \"chunks\": 1, expected at least 2 stages per rank; use \"chunks\": 2, or \"schedule\": \"1f1b\"");
  }
  const std::int64_t below = shape.micro_batches / shape.ranks * shape.ranks;
  if (shape.micro_batches == below) return;
  const std::string nearest = below > 0 ? fmt::format("{} or {}", below, below + shape.ranks) : fmt::format("{}", shape.ranks);
  reasons.push_back(fmt::format("found {} micro-batches, expected a multiple of the {} pipeline ranks; the nearest is {}",
                                shape.micro_batches, shape.ranks, nearest));
}

void at_least(std::int64_t least, std::string_view what, const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.micro_batches >= least) return;
  reasons.push_back(
      fmt::format("found {} micro-batch{}, expected at least {} ({} for {} ranks); use {} micro-batches, or \"schedule\": "
                  "\"1f1b\"",
                  shape.micro_batches, shape.micro_batches == 1 ? "" : "es", least, what, shape.ranks, least));
}

void full_start(const Shape& shape, std::vector<std::string>& reasons) { at_least(2 * shape.ranks - 1, "2p-1", shape, reasons); }

void one_batch_per_pipeline(const Shape& shape, std::vector<std::string>& reasons) { at_least(shape.ranks, "p", shape, reasons); }

void two_directions(const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.ranks % 2 != 0) {
    reasons.push_back(fmt::format("found {} pipeline rank{}, expected an even count; the nearest is {}", shape.ranks,
                                  shape.ranks == 1 ? "" : "s",
                                  shape.ranks == 1 ? "2" : fmt::format("{} or {}", shape.ranks - 1, shape.ranks + 1)));
  }
  if (shape.micro_batches % 2 != 0) {
    reasons.push_back(fmt::format("found {} micro-batches, expected an even count, half for each direction; the nearest is {}",
                                  shape.micro_batches, shape.micro_batches + 1));
  }
  at_least(2 * shape.ranks, "2p", shape, reasons);
}

// A rank begins as many micro-batches as have time to come back to it, and no more than there are.
std::int64_t as_many_as(std::int64_t warm_up, const Shape& shape) { return std::min(warm_up, shape.micro_batches * shape.chunks); }

constexpr std::array<Kind, 11> kKinds{{
    {.name = "gpipe",
     .about = "all forwards, then all backwards",
     .bubble = "(p-1)/(m+p-1)",
     .holds = [](const Shape& shape, std::int64_t) { return shape.micro_batches; },
     .steady_from = [](const Shape&, std::int64_t) { return kNever; },
     .make = gpipe},
    {.name = "1f1b",
     .about = "forward and backward by turns: fewer held",
     .bubble = "(p-1)/(m+p-1)",
     .searched = true,
     .holds = [](const Shape& shape, std::int64_t rank) { return as_many_as(shape.ranks - rank, shape); },
     .steady_from = [](const Shape& shape, std::int64_t rank) { return as_many_as(shape.ranks - rank, shape) + 1; },
     .make = one_f_one_b},
    {.name = "interleaved",
     .about = "1f1b over chunks: less bubble, more messages",
     .bubble = "(p-1)/(vm+p-1)",
     .chunked = true,
     .searched = true,
     .holds = [](const Shape& shape,
                 std::int64_t rank) { return as_many_as(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks + 1, shape); },
     .add_reasons = groups_of_ranks,
     .make = interleaved},
    {.name = "varuna", .about = "keeps stage inputs, recomputes early", .recomputes = true, .make = varuna},
    {.name = "zb-h1",
     .about = "weight gradients fill some of the bubble",
     .bubble = "(p-1)/(3m+p-1)",
     .splits_backward = true,
     .searched = true,
     .holds = [](const Shape& shape, std::int64_t) { return as_many_as(shape.ranks, shape); },
     .make = zb_h1},
    {.name = "zb-h2",
     .about = "weight gradients fill all of it; more held",
     .splits_backward = true,
     .barrier_free = true,
     .searched = true,
     .holds = [](const Shape& shape, std::int64_t) { return as_many_as(2 * shape.ranks - 1, shape); },
     .add_reasons = full_start,
     .make = zb_h2},
    {.name = "dualpipe",
     .about = "from both ends, weights twice; drawn, not run",
     .bubble = "(p-2)/(3m+p-2)",
     .splits_backward = true,
     .drawn_only = true,
     .add_reasons = two_directions,
     .make = dualpipe},
    {.name = "naive", .about = "one micro-batch at a time, the others wait", .bubble = "(p-1)/p", .make = naive},
    {.name = "pipedream", .about = "no flush; a backward's weights are kept for it", .asynchronous = true, .make = pipedream},
    {.name = "pipedream-vsync", .about = "as pipedream, one version in all stages", .asynchronous = true, .make = pipedream_vsync},
    {.name = "2bw",
     .about = "no flush; weights one batch old",
     .asynchronous = true,
     .add_reasons = one_batch_per_pipeline,
     .make = two_buffered},
}};

}  // namespace

bool Kind::is_steady(const Shape& shape, std::int64_t rank) const {
  const std::int64_t pieces = shape.micro_batches * shape.chunks;
  if (steady_from != nullptr) return pieces >= steady_from(shape, rank);
  const std::int64_t held = holds == nullptr ? 1 : holds(shape, rank);
  return pieces >= 2 * held + shape.stages();
}

std::span<const Kind> kinds() { return kKinds; }

const Kind* kind_named(std::string_view name) { return name.ends_with(kCsvSuffix) ? nullptr : &find_kind(name); }

const Kind& find_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  const std::string_view nearest = base::nearest_name(name, names);
  base::bad_input("found no schedule \"{}\", expected one of {} or a file that ends with .csv{}", name, fmt::join(names, ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

std::vector<std::string> reasons_against(const Shape& shape) {
  std::vector<std::string> reasons;
  const auto positive = [&](std::string_view what, std::int64_t count) {
    if (count < 1) reasons.push_back(fmt::format("found {} {}, expected at least 1", count, what));
  };
  positive("ranks", shape.ranks);
  positive("micro-batches", shape.micro_batches);
  positive("chunks", shape.chunks);
  positive("batches", shape.batches);
  if (!reasons.empty()) return reasons;
  // By division: the product may not fit an integer.
  std::int64_t room = kMostPieces;
  for (std::int64_t count : {shape.ranks, shape.chunks, shape.micro_batches, shape.batches}) room /= count;
  if (room < 1) {
    reasons.push_back(
        fmt::format("found {} ranks x {} chunks x {} micro-batches x {} batches, expected at most {} pieces in all; use fewer "
                    "and larger micro-batches",
                    shape.ranks, shape.chunks, shape.micro_batches, shape.batches, kMostPieces));
  }
  return reasons;
}

std::vector<std::string> reasons_against(const Kind& kind, const Shape& shape) {
  std::vector<std::string> reasons = reasons_against(shape);
  if (!reasons.empty()) return reasons;
  if (!kind.chunked && shape.chunks != 1) {
    reasons.push_back(
        fmt::format("found \"chunks\": {}, expected 1 stage per rank; use \"chunks\": 1, or \"schedule\": \"interleaved\"", shape.chunks));
  }
  if (!kind.takes_batches() && shape.batches != 1) {
    reasons.push_back(
        fmt::format("found {} batches in a row, expected 1: every batch ends with a flush; use \"flush_every\": 1", shape.batches));
  }
  if (kind.add_reasons != nullptr) kind.add_reasons(shape, reasons);
  return reasons;
}

void require_legal(std::string_view name, const std::vector<std::string>& reasons) {
  if (!reasons.empty()) base::not_legal("the schedule \"{}\" cannot be used: {}", name, fmt::join(reasons, "; "));
}

Schedule build(std::string_view name, const Shape& shape) {
  const Kind& kind = find_kind(name);
  require_legal(name, reasons_against(kind, shape));
  return kind.make(shape);
}

}  // namespace plimsoll::strategy::schedules
