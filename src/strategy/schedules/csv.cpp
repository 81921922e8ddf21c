#include "strategy/schedules/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "strategy/schedules/verify.h"

namespace plimsoll::strategy::schedules {

namespace {

enum Column : std::size_t { rank_column, work_column, stage_column, micro_batch_column, version_column, joined_column };
constexpr std::array<std::string_view, 6> kColumns{"rank", "work", "stage", "micro_batch", "version", "joined"};
constexpr std::size_t kRequired = 4;
constexpr std::array kWorks{Work::forward, Work::backward, Work::backward_input, Work::backward_weight, Work::recompute, Work::update};

struct Cell {
  std::string_view text;
  std::size_t line = 0;
  std::size_t column = 0;  // of the first character, from 1
};

std::vector<Cell> cells_of(std::string_view line, std::size_t number) {
  std::vector<Cell> cells;
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t stop = std::min(line.find(',', start), line.size());
    std::size_t first = start;
    std::size_t last = stop;
    while (first < last && line[first] == ' ') ++first;
    while (last > first && line[last - 1] == ' ') --last;
    cells.push_back({.text = line.substr(first, last - first), .line = number, .column = first + 1});
    start = stop + 1;
  }
  return cells;
}

// What the text says, for a message: short, and without what a terminal would obey.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string out;
  for (char c : text.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return fmt::format("\"{}{}\"", out, text.size() > kLongest ? "..." : "");
}

// Where stages lie: as most items say.
Placement placement_of(const Schedule& schedule) {
  Placement best = Placement::looped;
  std::size_t best_count = 0;
  for (Placement candidate : {Placement::looped, Placement::vee, Placement::both_ways}) {
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (const Item& item : schedule.ranks[rank]) {
        if (item.work == Work::update) continue;
        count += rank_of(schedule.shape, candidate, item.stage, item.micro_batch) == static_cast<std::int32_t>(rank) ? 1 : 0;
      }
    }
    if (count > best_count) {
      best = candidate;
      best_count = count;
    }
  }
  return best;
}

class Parser {
 public:
  Parser(std::string_view name, const Shape& shape) : name_(name) {
    schedule_ = {.name = std::string(name), .shape = shape, .ranks = {}};
    schedule_.ranks.resize(static_cast<std::size_t>(shape.ranks));
  }

  Schedule parse(std::string_view text);

 private:
  template <typename... Args>
  [[noreturn]] void fail(const Cell& cell, fmt::format_string<Args...> format, Args&&... args) const {
    base::bad_input("{}: line {}, column {}: {}", name_, cell.line, cell.column, fmt::format(format, std::forward<Args>(args)...));
  }

  void header(const std::vector<Cell>& cells);
  void row(const std::vector<Cell>& cells);
  std::int32_t number(const Cell& cell, Column column, std::int64_t least, std::int64_t most) const;
  Work work(const Cell& cell) const;
  void settle_batches();
  void refuse_other_steps() const;

  std::string_view name_;
  Schedule schedule_;
  std::array<std::optional<std::size_t>, kColumns.size()> where_;  // which cell of a line holds a column
  std::size_t width_ = 0;
  std::int32_t largest_micro_batch_ = -1;
  Cell largest_cell_;
  std::int32_t updates_ = 0;
};

void Parser::header(const std::vector<Cell>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto found = std::find(kColumns.begin(), kColumns.end(), cells[i].text);
    if (found == kColumns.end()) {
      const std::string_view nearest = base::nearest_name(cells[i].text, kColumns);
      fail(cells[i], "found a column {}, expected {}{}", shown(cells[i].text), fmt::join(kColumns, ", "),
           nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
    }
    std::optional<std::size_t>& where = where_[static_cast<std::size_t>(found - kColumns.begin())];
    if (where) fail(cells[i], "found the column \"{}\" twice, expected it once", *found);
    where = i;
  }
  for (std::size_t column = 0; column < kRequired; ++column) {
    if (!where_[column]) fail(cells[0], "found no column \"{}\", expected {}", kColumns[column], fmt::join(kColumns, ", "));
  }
  width_ = cells.size();
}

std::int32_t Parser::number(const Cell& cell, Column column, std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  const char* end = cell.text.data() + cell.text.size();
  const auto [stop, error] = std::from_chars(cell.text.data(), end, value);
  if (cell.text.empty() || error != std::errc{} || stop != end || value < least || value > most) {
    fail(cell, "found {} as \"{}\", expected a number from {} to {}", shown(cell.text), kColumns[column], least, most);
  }
  return static_cast<std::int32_t>(value);
}

Work Parser::work(const Cell& cell) const {
  std::vector<std::string_view> names;
  for (Work work : kWorks) {
    if (name_of(work) == cell.text) return work;
    names.push_back(name_of(work));
  }
  const std::string_view nearest = base::nearest_name(cell.text, names);
  fail(cell, "found {} as \"work\", expected {}{}", shown(cell.text), fmt::join(names, ", "),
       nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
}

void Parser::row(const std::vector<Cell>& cells) {
  if (cells.size() != width_) fail(cells[0], "found {} columns, expected {} as in the first line", cells.size(), width_);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
  const auto cell = [&](Column column) -> const Cell& { return cells[*where_[column]]; };
  const Shape& shape = schedule_.shape;
  Item item{.work = work(cell(work_column))};
  const std::int32_t rank = number(cell(rank_column), rank_column, 0, shape.ranks - 1);
  if (item.work == Work::update) {
    for (Column column : {stage_column, micro_batch_column}) {
      if (!cell(column).text.empty())
        fail(cell(column), "found {} as \"{}\", expected nothing: an update is for all of a rank's stages", shown(cell(column).text),
             kColumns[column]);
    }
    item.version = 1;
  } else {
    item.stage = number(cell(stage_column), stage_column, 0, shape.stages() - 1);
    item.micro_batch = number(cell(micro_batch_column), micro_batch_column, 0, kMost);
    if (item.micro_batch > largest_micro_batch_) {
      largest_micro_batch_ = item.micro_batch;
      largest_cell_ = cell(micro_batch_column);
    }
  }
  if (where_[version_column]) item.version = number(cell(version_column), version_column, item.work == Work::update ? 1 : 0, kMost);
  if (where_[joined_column]) item.joined = number(cell(joined_column), joined_column, 0, 1) == 1;
  std::vector<Item>& items = schedule_.ranks[static_cast<std::size_t>(rank)];
  items.push_back(item);
  if (item.work == Work::update) updates_ = std::max(updates_, item.version);
}

// Batches are as many as updates; no more than there are lines, so that a wrong number cannot fill the memory. Nor more than there are
// micro-batches for: an update too many on one rank is that rank's mistake, not that of all others whose items of another batch lack.
void Parser::settle_batches() {
  Shape& shape = schedule_.shape;
  std::size_t most = 1;
  for (const std::vector<Item>& items : schedule_.ranks) most = std::max(most, items.size());
  const std::int64_t micro_batches = std::int64_t{largest_micro_batch_} + 1;
  const std::int64_t begun = std::max<std::int64_t>(1, (micro_batches + shape.micro_batches - 1) / shape.micro_batches);
  shape.batches = std::clamp<std::int64_t>(std::min<std::int64_t>(updates_, begun), 1, static_cast<std::int64_t>(most));
  schedule_.barrier = shape.batches == 1;
  if (updates_ == 0) {
    for (std::vector<Item>& items : schedule_.ranks) items.push_back({.work = Work::update, .version = 1});
  }
  if (largest_micro_batch_ >= shape.all_micro_batches()) {
    fail(largest_cell_, "found {} as \"micro_batch\", expected 0 to {}: {} micro-batches in {} batch{}", largest_micro_batch_,
         shape.all_micro_batches() - 1, shape.micro_batches, shape.batches, shape.batches == 1 ? "" : "es");
  }
}

// A file that is whole for steps of fewer micro-batches lacks nothing: it belongs to another run.
void Parser::refuse_other_steps() const {
  const std::int64_t found = std::int64_t{largest_micro_batch_} + 1;
  const std::int64_t expected = schedule_.shape.micro_batches;
  if (found == 0 || found >= expected) return;
  Schedule other = schedule_;
  other.shape.micro_batches = found;
  other.placement = placement_of(other);
  if (!problems_of(other).empty()) return;
  base::not_legal(
      "the schedule \"{}\" cannot be run: found orders for {} micro-batch{}, expected {}, as many as a step of this run has; use another "
      "\"batch.global\" or \"batch.micro\", or a file for {}",
      name_, found, found == 1 ? "" : "es", expected, expected);
}

Schedule Parser::parse(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets begin their files with it
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::size_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t stop = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, stop - start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    start = stop + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (width_ == 0) {
      header(cells_of(line, number));
    } else {
      row(cells_of(line, number));
    }
  }
  if (width_ == 0) {
    base::bad_input("{}: found no line with columns, expected {} first, then a line for each item", name_, fmt::join(kColumns, ","));
  }
  settle_batches();
  schedule_.placement = placement_of(schedule_);
  refuse_other_steps();
  return std::move(schedule_);
}

}  // namespace

Schedule parse_csv(std::string_view text, std::string_view name, const Shape& shape) {
  Shape one = shape;
  one.batches = 1;
  return Parser(name, one).parse(text);
}

std::string write_csv(const Schedule& schedule) {
  std::string text = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Item& item : schedule.ranks[rank]) {
      const auto number = [](std::int32_t value) { return value == kNone ? std::string() : fmt::format("{}", value); };
      text += fmt::format("{},{},{},{},{},{}\n", rank, name_of(item.work), number(item.stage), number(item.micro_batch), item.version,
                          item.joined ? 1 : 0);
    }
  }
  return text;
}

}  // namespace plimsoll::strategy::schedules
