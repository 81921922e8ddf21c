#include "report/gantt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace plimsoll::report {

namespace schedules = strategy::schedules;
using schedules::Item;
using schedules::Work;

namespace {

bool is_light(const schedules::Schedule& schedule, const Item& item) {
  const schedules::Shape& shape = schedule.shape;
  if (schedule.placement == schedules::Placement::both_ways) return item.micro_batch >= shape.all_micro_batches() / 2;
  return (item.stage / shape.ranks + item.micro_batch / shape.micro_batches) % 2 == 1;
}

bool needs_recompute(const Gantt& gantt, std::size_t rank) {
  return std::any_of(gantt.schedule.ranks[rank].begin(), gantt.schedule.ranks[rank].end(),
                     [](const Item& item) { return item.work == Work::recompute; });
}

// Of all ranks together, for one batch.
double busy(const Gantt& gantt) {
  double time = 0.0;
  for (std::size_t rank = 0; rank < gantt.schedule.ranks.size(); ++rank) time += gantt.timeline.busy(rank);
  return time / static_cast<double>(gantt.schedule.shape.batches);
}

}  // namespace

Gantt gantt_of(schedules::Schedule schedule, std::string about) {
  const double part = 1.0 / static_cast<double>(schedule.shape.chunks);
  Gantt gantt{.schedule = std::move(schedule),
              .costs = {.stages = {{.forward = part, .backward_input = part, .backward_weight = part, .recompute = part}}},
              .timeline = {},
              .figures = {},
              .about = std::move(about),
              .formula = ""};
  gantt.timeline = schedules::simulate(gantt.schedule, gantt.costs);
  gantt.figures = schedules::figures(gantt.schedule, gantt.timeline);
  gantt.step = gantt.figures.makespan / static_cast<double>(gantt.schedule.shape.batches);
  const double all = gantt.step * static_cast<double>(gantt.schedule.ranks.size());
  gantt.bubble = all > 0.0 ? 1.0 - busy(gantt) / all : 0.0;
  if (!gantt.schedule.barrier && gantt.schedule.shape.batches == 1) gantt.flowing = gantt.figures.bubble_fraction;
  gantt.messages =
      std::accumulate(gantt.figures.messages.begin(), gantt.figures.messages.end(), std::int64_t{0}) / gantt.schedule.shape.batches;
  return gantt;
}

void set_steady(Gantt& gantt, double bubble) {
  gantt.steady = true;
  gantt.bubble = bubble;
  gantt.step = busy(gantt) / (static_cast<double>(gantt.schedule.ranks.size()) * (1.0 - bubble));
  gantt.flowing.reset();
}

std::vector<Bar> bars_of(const Gantt& gantt, std::size_t rank) {
  const std::vector<Item>& items = gantt.schedule.ranks[rank];
  std::vector<Bar> bars;
  bars.reserve(items.size());
  double piece_start = 0.0;
  bool inside = false;  // a joined piece, whose items all have its span
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const double start = inside ? piece_start : gantt.timeline.ranks[rank][i].start;
    piece_start = start + gantt.costs.of(item);
    inside = item.joined;
    if (item.work == Work::update) continue;
    bars.push_back(
        {.work = item.work, .light = is_light(gantt.schedule, item), .micro_batch = item.micro_batch, .start = start, .end = piece_start});
  }
  return bars;
}

std::string title(const Gantt& gantt) {
  const std::int64_t chunks = gantt.schedule.shape.chunks;
  return chunks > 1 ? fmt::format("{}, {} chunks", gantt.schedule.name, chunks) : gantt.schedule.name;
}

std::vector<double> updates_of(const Gantt& gantt, std::size_t rank) {
  std::vector<double> times;
  for (std::size_t i = 0; i < gantt.schedule.ranks[rank].size() && gantt.schedule.shape.batches > 1; ++i) {
    if (gantt.schedule.ranks[rank][i].work == Work::update) times.push_back(gantt.timeline.ranks[rank][i].start);
  }
  return times;
}

double held(const Gantt& gantt, std::size_t rank) {
  return static_cast<double>(gantt.figures.peak_live[rank]) / static_cast<double>(gantt.schedule.shape.chunks);
}

double longest(std::span<const Gantt> gantts) {
  double time = 0.0;
  for (const Gantt& gantt : gantts) time = std::max(time, gantt.timeline.makespan);
  return time;
}

double most_held(std::span<const Gantt> gantts) {
  double most = 0.0;
  for (const Gantt& gantt : gantts) {
    for (std::size_t rank = 0; rank < gantt.schedule.ranks.size(); ++rank) most = std::max(most, held(gantt, rank));
  }
  return most;
}

std::string plain(double number) {
  return std::abs(number - std::round(number)) < 1e-9 ? fmt::format("{:.0f}", number) : fmt::format("{:.1f}", number);
}

std::string summary(const Gantt& gantt) {
  const double most = most_held(std::span(&gantt, 1));
  const std::string flowing = gantt.flowing ? fmt::format(" ({:.1f}% from step to step without a flush)", 100.0 * *gantt.flowing) : "";
  std::string text = fmt::format("bubble {:.1f}%{}{}{}, a rank holds at most {} micro-batch{}", 100.0 * gantt.bubble,
                                 gantt.formula.empty() ? "" : " = " + gantt.formula, gantt.steady ? " once started" : "", flowing,
                                 plain(most), most == 1.0 ? "" : "es");
  if (needs_recompute(gantt, 0)) {
    const std::int64_t full = *std::max_element(gantt.figures.peak_full.begin(), gantt.figures.peak_full.end());
    text += fmt::format(" (inputs; with all activations {})",
                        plain(static_cast<double>(full) / static_cast<double>(gantt.schedule.shape.chunks)));
  }
  const std::int64_t versions = *std::max_element(gantt.figures.versions.begin(), gantt.figures.versions.end());
  if (versions > 1) text += fmt::format(", {} versions of its weights", versions);
  if (gantt.schedule.placement == schedules::Placement::both_ways) text += ", weights of two stages";
  text += fmt::format(", {} message{} a step", gantt.messages, gantt.messages == 1 ? "" : "s");
  if (gantt.messages == 0 || gantt.message.count == 0) return text;
  return text + ", " + base::to_string(base::Bytes{gantt.messages * gantt.message.count});
}

std::string wrapped(std::string_view words, int width, int indent) {
  const auto room = static_cast<std::size_t>(std::max(1, width - indent));
  std::string text;
  while (words.size() > room) {
    std::size_t stop = words.rfind(' ', room);
    if (stop == std::string_view::npos) stop = words.find(' ');
    if (stop == std::string_view::npos) break;
    text += fmt::format("{}\n{:>{}}", words.substr(0, stop), "", indent);
    words.remove_prefix(stop + 1);
  }
  return text + std::string(words);
}

std::vector<LegendEntry> legend_of(std::span<const Gantt> gantts) {
  constexpr std::array<LegendEntry, 5> kAll{{{Work::forward, "forward"},
                                             {Work::backward, "backward"},
                                             {Work::backward_input, "backward, inputs"},
                                             {Work::backward_weight, "backward, weights"},
                                             {Work::recompute, "recompute"}}};
  std::vector<LegendEntry> present;
  for (const LegendEntry& entry : kAll) {
    bool found = false;
    for (const Gantt& gantt : gantts) {
      for (const std::vector<Item>& items : gantt.schedule.ranks)
        found = found || std::any_of(items.begin(), items.end(), [&](const Item& item) { return item.work == entry.work; });
    }
    if (found) present.push_back(entry);
  }
  return present;
}

}  // namespace plimsoll::report
