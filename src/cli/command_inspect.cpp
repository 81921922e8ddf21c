#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/inspect_data.h"
#include "cli/inspect_model.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/terminal.h"
#include "plan/file.h"
#include "plan/print.h"
#include "report/waterline_text.h"

namespace plimsoll::cli {

namespace {

plan::Plan read_plan(io::FileSystem& file_system, const std::string& path) {
  return plan::plan_from_json(base::parse_json(io::read_text(file_system, path), path, {.max_bytes = std::size_t{1} << 30}));
}

void inspect_plan(io::FileSystem& file_system, const InspectOptions& options) {
  const plan::Plan plan = read_plan(file_system, options.path);
  if (!options.other.empty()) {
    const std::vector<std::string> lines = plan::diff(plan, read_plan(file_system, options.other));
    if (options.json) {
      base::Json differences = base::Json::array();
      for (const std::string& line : lines) differences.push(line);
      fmt::print("{}\n", base::write_json(base::Json::object({{"differences", std::move(differences)}}), base::JsonLayout::pretty));
      return;
    }
    for (const std::string& line : lines) fmt::print("{}\n", line);
    if (lines.empty()) fmt::print("the plans are equal\n");
    return;
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
