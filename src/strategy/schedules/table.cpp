#include "strategy/schedules/table.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "strategy/schedules/all.h"
#include "strategy/schedules/csv.h"

namespace plimsoll::strategy::schedules {

namespace {

// Pieces of a schedule that are still cheap to hold (16 bytes each, twice): thousands of ranks with thousands of micro-batches.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 23;

// In the order in which they are listed to users. A new one is a file that says what it is, its name in all.h, and its place here.
const std::array<Kind, 11>& all_kinds() {
  static const std::array<Kind, 11> kAll{gpipe(),    one_f_one_b(), interleaved(), varuna(),          zb_h1(),       zb_h2(),
                                         dualpipe(), naive(),       pipedream(),   pipedream_vsync(), two_buffered()};
  return kAll;
}

}  // namespace

bool Kind::is_steady(const Shape& shape, std::int64_t rank) const {
  const std::int64_t pieces = shape.micro_batches * shape.chunks;
  if (steady_from != nullptr) return pieces >= steady_from(shape, rank);
  const std::int64_t held = holds == nullptr ? 1 : holds(shape, rank);
  return pieces >= 2 * held + shape.stages();
}

std::span<const Kind> kinds() { return all_kinds(); }

const Kind* kind_named(std::string_view name) { return name.ends_with(kCsvSuffix) ? nullptr : &find_kind(name); }

const Kind& find_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  const std::string_view nearest = base::nearest_name(name, names);
  base::bad_input("found no schedule \"{}\", expected one of {} or a file that ends with .csv{}", name, fmt::join(names, ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

void require_micro_batches(std::int64_t least, std::string_view what, const Shape& shape, std::vector<std::string>& reasons) {
  if (shape.micro_batches >= least) return;
  reasons.push_back(
      fmt::format("found {} micro-batch{}, expected at least {} ({} for {} ranks); use {} micro-batches, or \"schedule\": "
                  "\"1f1b\"",
                  shape.micro_batches, shape.micro_batches == 1 ? "" : "es", least, what, shape.ranks, least));
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
