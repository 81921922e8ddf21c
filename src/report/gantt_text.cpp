#include "report/gantt_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report/names.h"

namespace plimsoll::report {

namespace {

using strategy::schedules::Work;

constexpr int kHeldCells = 8;
constexpr int kHeldWidth = kHeldCells + 6;
constexpr int kLeastChart = 24;

struct Look {
  char fill;
  std::string_view dark;  // escape codes: background and ink
  std::string_view light;
};

Look look_of(Work work) {
  switch (work) {
    case Work::forward: return {'>', "48;5;25;38;5;231", "48;5;117;38;5;16"};
    case Work::backward: return {'<', "48;5;28;38;5;231", "48;5;114;38;5;16"};
    case Work::backward_input: return {'i', "48;5;30;38;5;231", "48;5;80;38;5;16"};
    case Work::backward_weight: return {'w', "48;5;97;38;5;231", "48;5;183;38;5;16"};
    case Work::recompute: return {'r', "48;5;172;38;5;16", "48;5;222;38;5;16"};
    case Work::update: break;
  }
  return {'.', "", ""};
}

double shortest_piece(std::span<const Gantt> gantts) {
  double shortest = longest(gantts);
  for (const Gantt& gantt : gantts) {
    for (const Bar& bar : bars_of(gantt, 0)) {
      if (bar.end > bar.start) shortest = std::min(shortest, bar.end - bar.start);
    }
  }
  return shortest;
}

// Columns per unit of time. Whole columns for the shortest piece, where there is room for one, so that equal pieces look equal.
double scale_of(std::span<const Gantt> gantts, int columns) {
  const double shortest = shortest_piece(gantts);
  const double exact = columns / std::max(longest(gantts), 1e-9);
  const double whole = std::floor(exact * shortest + 1e-9);
  return whole >= 1.0 ? whole / shortest : exact;
}

std::string piece(const Bar& bar, int width, bool color) {
  const Look look = look_of(bar.work);
  const std::string label = fmt::format("{}", bar.micro_batch);
  std::string text(static_cast<std::size_t>(width), color ? ' ' : look.fill);
  // One column without colour has room for the number or the kind: forwards show the number, the rest what they are.
  const bool kind_only = !color && width == 1 && bar.work != Work::forward;
  if (label.size() <= text.size() && !kind_only) text.replace(0, label.size(), label);
  return tinted(text, bar.light ? look.light : look.dark, color);
}

std::string row(const Gantt& gantt, std::size_t rank, double scale, int columns, bool color) {
  std::string text;
  int column = 0;
  const auto idle_until = [&](int stop) {
    std::string gap;
    for (; column < stop; ++column) gap += "·";
    if (!gap.empty()) text += tinted(gap, "2", color);
  };
  for (const Bar& bar : bars_of(gantt, rank)) {
    const int start = static_cast<int>(std::lround(bar.start * scale));
    const int stop = std::min(static_cast<int>(std::lround(bar.end * scale)), columns);
    idle_until(start);
    if (stop <= column) continue;
    text += piece(bar, stop - column, color);
    column = stop;
  }
  idle_until(std::min(static_cast<int>(std::lround(gantt.timeline.makespan * scale)), columns));
  for (; column < columns; ++column) text += ' ';
  return text;
}

// One cell is one micro-batch, or more where eight cells are not enough.
std::string held_bar(double held, double most) {
  const int cells = std::max(1, static_cast<int>(std::lround(held / std::max<double>(most, kHeldCells) * kHeldCells)));
  std::string text;
  for (int i = 0; i < cells; ++i) text += "▆";
  return text;
}

std::string legend(std::span<const Gantt> gantts, const GanttStyle& style) {
  constexpr std::string_view kBetween = "   ";
  std::string text;
  std::size_t column = 0;
  const auto add = [&](const std::string& sample, std::string_view name) {
    const std::size_t width = 3 + name.size();  // samples have two columns
    const bool fits = column + kBetween.size() + width <= static_cast<std::size_t>(style.width);
    if (column > 0) text += fits ? kBetween : "\n";
    column = column > 0 && fits ? column + kBetween.size() + width : width;
    text += fmt::format("{} {}", sample, name);
  };
  for (const LegendEntry& entry : legend_of(gantts)) {
    const Look look = look_of(entry.work);
    add(tinted(style.color ? "0 " : std::string("0") + look.fill, look.dark, style.color), entry.name);
  }
  add(tinted("··", "2", style.color), "waiting");
  return text + "\nnumbers are micro-batches; ▆ how many a rank holds at most\n";
}

}  // namespace

std::string gantt_text(std::span<const Gantt> gantts, const GanttStyle& style) {
  std::size_t ranks = 0;
  for (const Gantt& gantt : gantts) ranks = std::max(ranks, gantt.schedule.ranks.size());
  const int label = static_cast<int>(fmt::format("rank {} ", ranks - 1).size());
  const int columns = std::max(style.width - label - 1 - kHeldWidth, kLeastChart);
  const double scale = scale_of(gantts, columns);
  const int used = std::min(columns, static_cast<int>(std::lround(longest(gantts) * scale)));
  std::string text;
  for (const Gantt& gantt : gantts) {
    text += fmt::format("{}: {}\n", tinted(title(gantt), "1", style.color), gantt.about);
    for (std::size_t rank = 0; rank < gantt.schedule.ranks.size(); ++rank) {
      text += fmt::format("{:<{}}│{} {:>4} {}\n", fmt::format("rank {}", rank), label, row(gantt, rank, scale, used, style.color),
                          plain(held(gantt, rank)), tinted(held_bar(held(gantt, rank), most_held(gantts)), "33", style.color));
    }
    text += fmt::format("{:>{}}└ {}\n\n", "", label, wrapped(summary(gantt), style.width, label + 2));
  }
  text += legend(gantts, style);
  // Else the eye takes pieces by turns for runs of one kind.
  if (scale * shortest_piece(gantts) < 1.0 - 1e-9)
    text += wrapped("there are more pieces than columns, which show some of them; --svg draws all", style.width, 0) + "\n";
  return text;
}

}  // namespace plimsoll::report
