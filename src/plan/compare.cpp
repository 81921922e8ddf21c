#include "plan/compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/traffic.h"
#include "plan/waterline.h"

namespace plimsoll::plan {

namespace {

class Figures {
 public:
  explicit Figures(bool after) : after_(after) {}

  void add(std::vector<Compared>& rows, const std::string& name, bool bytes, std::int64_t value) {
    const auto same = [&](const Compared& row) { return row.name == name; };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    // What only the second has stands behind what comes before it there.
    if (row == rows.end())
      row = rows.insert(last_ < rows.size() ? rows.begin() + static_cast<std::ptrdiff_t>(last_) + 1 : rows.end(), {name, bytes, 0, 0});
    (after_ ? row->after : row->before) = value;
    last_ = static_cast<std::size_t>(row - rows.begin());
  }

 private:
  bool after_;
  std::size_t last_ = 0;
};

std::int64_t calls_of(const Program& program) {
  std::int64_t count = 0;
  for (const Stream& stream : program.streams) count += static_cast<std::int64_t>(stream.calls.size());
  return count;
}

// Of the class whose ranks send most in the program.
std::vector<Traffic> most_traffic(const Plan& plan, const std::string& name) {
  std::vector<Traffic> most;
  std::int64_t most_bytes = -1;
  for (const RankClass& rank_class : plan.classes) {
    const Program* program = find_program(rank_class, name);
    if (program == nullptr) continue;
    std::vector<Traffic> traffic = traffic_of(plan, *program, rank_class.ranks.front());
    std::int64_t bytes = 0;
    for (const Traffic& entry : traffic) bytes += entry.bytes.count;
    if (bytes > most_bytes) most = std::move(traffic);
    most_bytes = std::max(most_bytes, bytes);
  }
  return most;
}

void add_figures(const Plan& plan, bool after, std::vector<Compared>& rows) {
  Figures figures(after);
  const RankClass& fullest = fullest_class(plan);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    const Bytes arena = fullest.arena[static_cast<std::size_t>(tier)];
    if (arena.count > 0) figures.add(rows, fmt::format("{}, fullest rank", name_of(tier)), true, arena.count);
  }
  if (!fullest.programs.empty()) {
    const Waterline line = waterline(fullest, 0, Tier::device);
    for (const auto& [kind, bytes] : by_kind(fullest, 0, Tier::device, line.peak_call))
      figures.add(rows, fmt::format("  {} at the device's peak", name_of(kind)), true, bytes.count);
  }
  figures.add(rows, "ranks", false, plan.mesh.ranks());
  figures.add(rows, "procedures", false, static_cast<std::int64_t>(plan.procedures.size()));
  for (const Program& program : fullest.programs) {
    figures.add(rows, fmt::format("{}: micro-batches", program.name), false, program.micro_batches);
    figures.add(rows, fmt::format("{}: calls of a rank", program.name), false, calls_of(program));
    for (const Traffic& entry : most_traffic(plan, program.name))
      figures.add(rows, fmt::format("{}: {} over {}, sent by a rank", program.name, entry.kind, name_of(entry.axis)), true,
                  entry.bytes.count);
  }
}

}  // namespace

std::vector<Compared> compare(const Plan& before, const Plan& after) {
  std::vector<Compared> rows;
  add_figures(before, false, rows);
  add_figures(after, true, rows);
  return rows;
}

}  // namespace plimsoll::plan
