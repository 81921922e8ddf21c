#include "checkpoint/folder.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "io/files.h"

namespace plimsoll::checkpoint {

namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp";

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kStep, step); }
std::string temporary_name(std::int64_t step) { return step_name(step) + std::string(kTemporary); }
std::string data_name(std::int64_t file) { return fmt::format("data-{:05}.bin", file); }

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || stop != digits.data() + digits.size() || step < 0 || name != step_name(step)) return std::nullopt;
  return step;
}

std::vector<std::int64_t> list_steps(io::FileSystem& file_system, const io::Path& folder) {
  const auto status = file_system.status(folder);
  if (!status || status->kind != io::EntryKind::directory) return {};
  std::vector<std::int64_t> steps;
  for (const io::Entry& entry : file_system.list(folder)) {
    if (const auto step = step_of(entry.name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void remove_debris(io::FileSystem& file_system, const io::Path& folder) {
  const auto status = file_system.status(folder);
  if (!status || status->kind != io::EntryKind::directory) return;
  for (const io::Entry& entry : file_system.list(folder)) {
    const std::string_view name = entry.name;
    if (name.ends_with(kTemporary) && step_of(name.substr(0, name.size() - kTemporary.size())))
      io::remove_tree(file_system, folder / entry.name);
  }
}

void make_durable_folder(io::FileSystem& file_system, const io::Path& folder) {
  if (file_system.status(folder)) return;
  const io::Path parent = folder.parent_path().empty() ? io::Path(".") : folder.parent_path();
  if (parent != folder) make_durable_folder(file_system, parent);
  if (!folder.has_filename()) return;  // a trailing slash: the parent was the folder itself
  io::make_directories(file_system, folder);
  file_system.sync_directory(parent);
}

}  // namespace plimsoll::checkpoint
