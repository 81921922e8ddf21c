// A plan as one page for a browser: timeline of every rank and stream, waterline under the line of what fits, communication, and
// tables such as the strategies that were compared. The page is one file that fetches nothing.
//
// What it looks like is in page/ (HTML, CSS and scripts, put into the program when that is built); here is what it shows, as one
// block of JSON. Ranks that behave alike are described once, times are whole ticks and memory whole quanta, so that a plan for 64
// ranks stays far below a few megabytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll::report {

struct CallTime {
  double begin = 0.0;  // seconds since the program started
  double end = 0.0;
};

// When the calls of one class's program run, by stream and call.
using ClassTimes = std::vector<std::vector<CallTime>>;

// A table whose rows a reader can sort. A cell that is null is unknown.
struct PageTable {
  enum class Format : std::uint8_t { text, seconds, count, percent, bytes };
  struct Column {
    std::string title;
    Format format = Format::text;
  };
  std::string title;
  std::string about;
  std::vector<Column> columns;
  std::vector<base::Json::Array> rows;
  std::int32_t chosen = -1;           // the row that stands out
  std::vector<std::int32_t> refused;  // rows that cannot be had
};

// Values over the steps of a run, as lines of one drawing.
struct PageCurve {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  // ascending
  };
  std::string title;
  std::vector<Line> lines;
};

struct Page {
  const plan::Plan& plan;  // without classes, where it would be too large: the page then has its tables alone
  std::string program = "train";
  bool outlined = false;          // the plan is an outline: its arenas are known, what fills them over the step is not
  base::Bytes capacity;           // of the device tier; zero: unknown
  base::Bytes reserve;            // what a process needs beside its arenas
  std::vector<ClassTimes> times;  // one for each class; empty: the page shows the order of calls alone
  std::string times_name = "predicted";
  std::vector<ClassTimes> beside = {};  // other times of the same calls, which a reader can switch to
  std::string beside_name = {};
  std::vector<std::pair<std::string, std::string>> figures;
  std::vector<PageTable> tables;
  std::vector<PageCurve> curves = {};
};

// What a call is for, in words: "forward", "collective".
std::string work_name(plan::StreamKind stream, std::string_view label);

base::Json page_data(const Page& page);
std::string page_html(const Page& page);

}  // namespace plimsoll::report
