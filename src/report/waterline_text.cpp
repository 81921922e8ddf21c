#include "report/waterline_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "plan/waterline.h"
#include "report/names.h"

namespace plimsoll::report {

namespace {

using base::Bytes;

constexpr int kChartRows = 8;
constexpr int kLabelWidth = 12;
// A cell is filled from below in eighths.
constexpr std::array<std::string_view, 9> kEighths{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::string with_commas(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::int64_t position = static_cast<std::int64_t>(digits.size()) - 3; position > 0; position -= 3)
    digits.insert(static_cast<std::size_t>(position), ",");
  return digits;
}

std::string_view tint_of(plan::BufferKind kind) {
  switch (kind) {
    case plan::BufferKind::parameter:
    case plan::BufferKind::stash:
    case plan::BufferKind::master:
    case plan::BufferKind::constant: return "34";
    case plan::BufferKind::state: return "36";
    case plan::BufferKind::gradient: return "33";
    case plan::BufferKind::activation:
    case plan::BufferKind::result: return "32";
    default: return "35";
  }
}

std::string bar(double share, int width) {
  std::string text;
  const double cells = share * width;
  for (int cell = 0; cell < width; ++cell) {
    const double filled = std::clamp(cells - cell, 0.0, 1.0);
    // Horizontal bars have no eighths that every terminal font draws; halves are enough.
    text += filled > 0.75 ? "█" : filled > 0.25 ? "▌" : "";
  }
  return text.empty() && share > 0.0 ? "▏" : text;
}

// The fullest moment within each column's share of the calls.
std::vector<Bytes> columns_of(const std::vector<Bytes>& at_call, int columns) {
  std::vector<Bytes> fullest(static_cast<std::size_t>(columns));
  const std::size_t calls = at_call.size();
  for (std::size_t column = 0; column < fullest.size(); ++column) {
    const std::size_t first = column * calls / fullest.size();
    const std::size_t last = std::max(first + 1, (column + 1) * calls / fullest.size());
    for (std::size_t call = first; call < last; ++call) fullest[column] = std::max(fullest[column], at_call[call]);
  }
  return fullest;
}

std::string chart(const std::vector<Bytes>& columns, Bytes top, bool color) {
  std::string text;
  for (int row = kChartRows; row-- > 0;) {
    const bool labelled = row == kChartRows - 1 || row == kChartRows / 2;
    const Bytes level{top.count * (row + 1) / kChartRows};
    std::string line;
    for (Bytes value : columns) {
      const double cells = static_cast<double>(value.count) / static_cast<double>(top.count) * kChartRows;
      const int eighths = static_cast<int>(std::clamp(cells - row, 0.0, 1.0) * 8.0 + 0.5);
      line += kEighths[static_cast<std::size_t>(eighths)];
    }
    text += fmt::format("{:>{}} {}{}\n", labelled ? base::to_string(level) : "", kLabelWidth - 2, labelled ? "┤" : "│",
                        tinted(line, "34", color));
  }
  return text;
}

// What a slower tier holds at its fullest moment; empty where it holds nothing.
std::string other_tier(const plan::RankClass& rank_class, std::int32_t program, plan::Tier tier) {
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(tier)];
  if (arena.count == 0) return "";
  std::string text = fmt::format("{} arena {} ({} B)\n", plan::name_of(tier), base::to_string(arena), with_commas(arena.count));
  const std::int32_t fullest = plan::waterline(rank_class, program, tier).peak_call;
  for (const auto& [kind, bytes] : plan::by_kind(rank_class, program, tier, fullest))
    text += fmt::format("  {:<12} {:>10}\n", kind == plan::BufferKind::activation ? "under way" : plural_of(kind), base::to_string(bytes));
  return text;
}

// What the process needs of the host in all; empty where nothing of the plan is there.
std::string host_total(const plan::RankClass& rank_class, Bytes reserve) {
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::host)];
  if (arena.count == 0 || reserve.count == 0) return "";
  return fmt::format("  {:<12} {:>10}  beside the arena: program, libraries, data\n  {:<12} {:>10}\n", "reserve", base::to_string(reserve),
                     "process", base::to_string(arena + reserve));
}

std::string axis(std::size_t width) {
  std::string line;
  for (std::size_t column = 0; column < width; ++column) line += "─";
  return fmt::format("{:>{}} └{}\n", "", kLabelWidth - 2, line);
}

}  // namespace

std::string waterline_text(const plan::Plan& plan, std::string_view program_name, const WaterlineStyle& style) {
  const plan::RankClass& rank_class = plan::fullest_class(plan);
  const auto found = std::find_if(rank_class.programs.begin(), rank_class.programs.end(),
                                  [&](const plan::Program& program) { return program.name == program_name; });
  PLIMSOLL_CHECK(found != rank_class.programs.end(), "the plan has no program {}", program_name);
  const auto program = static_cast<std::int32_t>(found - rank_class.programs.begin());
  const auto calls = static_cast<std::size_t>(plan::moments_of(*found));
  const plan::Waterline line = plan::waterline(rank_class, program, plan::Tier::device);
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)];

  std::string text = fmt::format("{}\n{}, {} thread{}\n", plan.model, plan.strategy, plan.threads, plan.threads == 1 ? "" : "s");
  for (const std::string& note : plan.notes) text += note + "\n";
  text += "\n";
  const std::string of_capacity = style.capacity.count > 0 ? fmt::format(" of {}", base::to_string(style.capacity)) : "";
  text += fmt::format("device arena {}{} ({} B), fullest in {}\n", base::to_string(arena), of_capacity, with_commas(arena.count),
                      label_at(*found, line.peak_call));
  const int bar_width = style.width - 30;
  Bytes listed{0};
  for (const auto& [kind, bytes] : plan::by_kind(rank_class, program, plan::Tier::device, line.peak_call)) {
    const double share = static_cast<double>(bytes.count) / static_cast<double>(arena.count);
    text += fmt::format("  {:<12} {:>10}  {}\n", plural_of(kind), base::to_string(bytes),
                        tinted(bar(share, bar_width), tint_of(kind), style.color));
    listed += bytes;
  }
  for (const plan::BoundedRows& rows : plan::bounded_rows(plan, rank_class, *found)) {
    text += fmt::format("  {:<12} at most {}, {} expected: there is memory for all of them\n", rows.name, with_commas(rows.bound),
                        with_commas(rows.expected));
  }
  if (arena > listed) text += fmt::format("  {:<12} {:>10}\n", "gaps", base::to_string(arena - listed));
  if (style.reserve.count > 0) {
    text += fmt::format("  {:<12} {:>10}  beside the arena: program, libraries, data\n", "reserve", base::to_string(style.reserve));
  }
  text += other_tier(rank_class, program, plan::Tier::host) + host_total(rank_class, style.host_reserve) +
          other_tier(rank_class, program, plan::Tier::disk);
  const int columns = std::min<int>(style.width - kLabelWidth, static_cast<int>(calls));
  const Bytes top = std::max(arena, Bytes{1});
  text += fmt::format("\nwaterline over the {} calls of one {} program\n", calls, program_name);
  text += chart(columns_of(line.at_call, columns), top, style.color) + axis(static_cast<std::size_t>(columns));
  return text;
}

}  // namespace plimsoll::report
