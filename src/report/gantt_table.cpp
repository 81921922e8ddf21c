#include "report/gantt_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll::report {

namespace {

constexpr std::size_t kMostListed = 6;

// "4 3 2 1", or "64 ... 1" for many ranks.
template <typename Value>
std::string listed(std::size_t count, const Value& value) {
  std::string text;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (count > kMostListed && rank == 1) {
      text += " ...";
      rank = count - 1;
    }
    text += (text.empty() ? "" : " ") + value(rank);
  }
  return text;
}

constexpr int kNameColumns = 24;

std::string line(const GanttRow& row, int width) {
  if (!row.reason.empty()) return fmt::format("{:<21} {}", row.name, wrapped(row.reason, width, kNameColumns));
  const Gantt& gantt = row.gantt;
  const std::vector<std::int64_t>& versions = gantt.figures.versions;
  const std::string held_by_rank = listed(gantt.schedule.ranks.size(), [&](std::size_t rank) { return plain(held(gantt, rank)); });
  const std::string figures =
      fmt::format("{:<21} {:>5} {:>6.1f}%  {:<16} {:>7} {:>8}", title(gantt), plain(gantt.step), 100.0 * gantt.bubble, held_by_rank,
                  *std::max_element(versions.begin(), versions.end()), gantt.messages);
  const std::string all = fmt::format("{}   {}", figures, gantt.about);
  return all.size() + 2 <= static_cast<std::size_t>(width) ? all : figures;
}

}  // namespace

std::string gantt_table(std::span<const GanttRow> rows, const GanttStyle& style) {
  std::string text =
      fmt::format("  {:<21} {:>5} {:>7}  {:<16} {:>7} {:>8}\n", "schedule", "step", "bubble", "held, by rank", "weights", "messages");
  for (const GanttRow& row : rows) {
    const std::string words = line(row, style.width);
    const std::string_view code = row.drawn ? "1" : row.reason.empty() ? "0" : "2";
    text += style.color ? fmt::format("\x1b[{}m{} {}\x1b[0m\n", code, row.drawn ? '>' : ' ', words)
                        : fmt::format("{} {}\n", row.drawn ? '>' : ' ', words);
  }
  return text;
}

}  // namespace plimsoll::report
