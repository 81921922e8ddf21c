// What the drawings of a pipeline schedule share: its pieces in time, with their colour class and label.
//
// A piece that stands for two joined items is drawn as both, one after the other, in proportion to their costs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "strategy/schedules/simulate.h"

namespace plimsoll::report {

// One schedule to draw; several are drawn below each other on the same time scale.
struct Gantt {
  strategy::schedules::Schedule schedule;
  strategy::schedules::Costs costs;
  strategy::schedules::Timeline timeline;
  strategy::schedules::Figures figures;
  std::string about;                   // one line
  std::string formula;                 // of the bubble; may be empty
  double step = 0.0;                   // what a step takes with its flush, or once a schedule without flush has started
  bool steady = false;                 // the latter
  double bubble = 0.0;                 // the share of that which ranks wait
  std::optional<double> flowing = {};  // the same from step to step where ranks go on without waiting for each other, which they can
  std::int64_t messages = 0;           // of a step, all ranks
  base::Bytes message = {};            // what one of them takes; 0 where that is not known
};

// With times in units of a forward of all of a rank's stages: a backward takes two, one for inputs and one for weights.
Gantt gantt_of(strategy::schedules::Schedule schedule, std::string about);

// The figures of a schedule without flush once it has started.
void set_steady(Gantt& gantt, double bubble);

struct Bar {
  strategy::schedules::Work work = strategy::schedules::Work::forward;
  bool light = false;  // the second of two shades: odd chunks, the way down, odd batches
  std::int32_t micro_batch = 0;
  double start = 0.0;
  double end = 0.0;
};

// In the order of the rank; updates, which take no time, are left out.
std::vector<Bar> bars_of(const Gantt& gantt, std::size_t rank);

// "1f1b" or "interleaved, 2 chunks"
std::string title(const Gantt& gantt);

// When the rank updates its weights between others' work; empty where a flush makes that the end of the step.
std::vector<double> updates_of(const Gantt& gantt, std::size_t rank);

// What a rank holds at most, in activations of all its stages for one micro-batch.
double held(const Gantt& gantt, std::size_t rank);

double longest(std::span<const Gantt> gantts);    // makespan
double most_held(std::span<const Gantt> gantts);  // by any rank

// "bubble 27.3%, a rank holds at most 4 micro-batches, 48 messages a step, 96.0 KiB"
std::string summary(const Gantt& gantt);

// "4" or "5.5"
std::string plain(double number);
// `words` (ASCII) broken at spaces into lines that end before column `width`, all of which begin at column `indent`; the first is already
// there.
std::string wrapped(std::string_view words, int width, int indent);

struct LegendEntry {
  strategy::schedules::Work work;
  std::string_view name;
};
// The kinds of work that occur, in drawing order.
std::vector<LegendEntry> legend_of(std::span<const Gantt> gantts);

}  // namespace plimsoll::report
