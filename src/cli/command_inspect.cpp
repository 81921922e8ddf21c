#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/inspect_data.h"
#include "cli/inspect_model.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/terminal.h"
#include "plan/compare.h"
#include "plan/file.h"
#include "plan/print.h"
#include "report/waterline_text.h"

namespace plimsoll::cli {

namespace {

plan::Plan read_plan(io::FileSystem& file_system, const std::string& path) {
  return plan::plan_from_json(base::parse_json(io::read_text(file_system, path), path, {.max_bytes = std::size_t{1} << 30}));
}

// Figures first: they say what the lines behind them come to.
void compare_plans(const plan::Plan& before, const plan::Plan& after, bool as_json) {
  const std::vector<std::string> lines = plan::diff(before, after);
  const std::vector<plan::Compared> figures = plan::compare(before, after);
  if (as_json) {
    base::Json summary = base::Json::object();
    for (const plan::Compared& each : figures)
      summary.set(each.name.substr(each.name.find_first_not_of(' ')), base::Json::object({{"before", each.before}, {"after", each.after}}));
    base::Json differences = base::Json::array();
    for (const std::string& line : lines) differences.push(line);
    fmt::print("{}\n", base::write_json(base::Json::object({{"summary", std::move(summary)}, {"differences", std::move(differences)}}),
                                        base::JsonLayout::pretty));
    return;
  }
  if (lines.empty()) return fmt::print("the plans are equal\n");
  std::size_t widest = 0;
  for (const plan::Compared& each : figures) widest = std::max(widest, each.name.size());
  fmt::print("{:<{}}  {:>12}  {:>12}\n", "", widest, "before", "after");
  for (const plan::Compared& each : figures) {
    const auto text = [&](std::int64_t value) { return each.bytes ? base::to_string(base::Bytes{value}) : fmt::format("{}", value); };
    const double change = each.before > 0 ? 100.0 * static_cast<double>(each.after - each.before) / static_cast<double>(each.before) : 0.0;
    const std::string ratio = each.before == each.after ? "="
                              : each.before == 0        ? "new"
                              : each.after == 0         ? "gone"
                                                        : fmt::format("{:+.1f}%", change);
    fmt::print("{:<{}}  {:>12}  {:>12}  {:>7}\n", each.name, widest, text(each.before), text(each.after), ratio);
  }
  const auto gone = std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("- "); });
  fmt::print("\n{} lines of the plan are gone, {} are new:\n", gone, static_cast<std::ptrdiff_t>(lines.size()) - gone);
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

void inspect_plan(io::FileSystem& file_system, const InspectOptions& options) {
  const plan::Plan plan = read_plan(file_system, options.path);
  if (!options.other.empty()) {
    return compare_plans(plan, read_plan(file_system, options.other), options.json);
  }
  if (options.json) {
    fmt::print("{}\n", base::write_json(plan::to_json(plan), base::JsonLayout::pretty));
    return;
  }
  for (const plan::Program& program : plan.classes.at(0).programs) {
    fmt::print("{}\n", report::waterline_text(plan, program.name,
                                              {.color = observe::detect_terminal(1).color, .width = 72, .capacity = {}, .reserve = {}}));
  }
}

bool starts_like_json(io::FileSystem& file_system, const std::string& path) {
  const io::Mapping mapping = file_system.map(path);
  return !mapping.bytes().empty() && mapping.bytes().front() == std::byte{'{'};
}

}  // namespace

void inspect_command(const InspectOptions& options) {
  io::PosixFileSystem file_system;
  const auto status = file_system.status(options.path);
  if (!status)
    base::bad_input("{}: there is nothing of that name; expected a plan, a checkpoint, a model, a token file or a tokenizer", options.path);
  const bool folder = status->kind == io::EntryKind::directory;
  if (!options.other.empty() && (folder || !starts_like_json(file_system, options.path)))
    base::bad_input("--diff compares two plans, and {} is none; expected a file that `plimsoll plan --out` wrote", options.path);
  if (folder) return inspect_folder(file_system, options);
  if (looks_like_safetensors(file_system, options.path)) return inspect_safetensors(file_system, options);
  if (looks_like_tokenizer(file_system, options.path)) return inspect_tokenizer(file_system, options);
  if (starts_like_json(file_system, options.path)) return inspect_plan(file_system, options);
  inspect_tokens(file_system, options);
}

}  // namespace plimsoll::cli
