#include "cli/common.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/ranks.h"
#include "cli/say.h"
#include "config/config.h"
#include "formats/hf_config.h"
#include "io/files.h"
#include "strategy/legality.h"

namespace plimsoll::cli {

namespace {

constexpr std::int64_t kLargestRunFile = std::int64_t{16} << 20;

std::string run_text(io::FileSystem& file_system, const std::string& path, std::string_view expected) {
  try {
    return io::read_text(file_system, path, kLargestRunFile);
  } catch (const base::Error& error) {
    base::fail(error.kind(), "{}; expected {}", error.what(), expected);
  }
}

// The override that makes the strategy one of `ranks` ranks, where it leaves the data axis open.
std::string data_ranks_for(const config::Run& run, std::int64_t ranks) {
  const std::int64_t others = run.strategy.tensor * run.strategy.pipe;
  if (run.given("strategy.data") || run.strategy.own_degrees() || ranks % others != 0) {
    base::not_legal("{}: found a strategy of {} ranks ({}) and --ranks {}; give --ranks {}, or a \"strategy\" of {} ranks",
                    run.where("strategy.data"), run.strategy.ranks(), strategy::mesh_text(run.strategy), ranks, run.strategy.ranks(),
                    ranks);
  }
  return fmt::format("strategy.data={}", ranks / others);
}

}  // namespace

config::Run read_run(io::FileSystem& file_system, const RunOptions& options) {
  config::NamedText deepspeed{.name = options.deepspeed, .text = ""};
  if (!deepspeed.name.empty()) deepspeed.text = run_text(file_system, deepspeed.name, "a DeepSpeed configuration (see docs/deepspeed.md)");
  const std::string text = run_text(file_system, options.file, "a run file (see docs/run-file.md)");
  config::Run run = config::parse_run(text, options.file, options.overrides, deepspeed);
  const std::int64_t ranks = options.ranks > 0 ? options.ranks : ranks_started();
  // Ranks of a strategy that is still open are the planner's business.
  if (ranks > 0 && !run.strategy_auto && ranks != run.strategy.ranks()) {
    if (const std::string settled = data_ranks_for(run, ranks); !settled.empty()) {
      std::vector<std::string> overrides = options.overrides;
      overrides.push_back(settled);
      run = config::parse_run(text, options.file, overrides, deepspeed);
    }
  }
  if (const std::string warning = config::deepspeed_warning(run); !warning.empty() && is_first_process()) say("plimsoll: {}", warning);
  if (!run.model_path.empty()) config::resolve_model(run, formats::read_hf_config(file_system, run.model_path));
  return run;
}

Source read_source(io::FileSystem& file_system, const RunOptions& options) {
  const train::ModelPlace place = train::find_model(file_system, options.file);
  if (place.model_folder.empty()) {
    RunOptions of_file = options;
    of_file.file = place.run_file.string();
    return {place, read_run(file_system, of_file)};
  }
  const base::Json settings = base::Json::object({{"model", base::Json::object({{"path", place.model_folder.string()}})}});
  config::Run run = config::parse_run(base::write_json(settings), options.file, options.overrides);
  config::resolve_model(run, formats::read_hf_config(file_system, place.model_folder));
  return {place, std::move(run)};
}

void say_passed_over(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) say("passed over: {}\n", problem);
}

void say_absent(const std::string& folder, const std::vector<std::string>& parameters) {
  for (const std::string& name : parameters) say("{} has no {}; it starts from random values\n", folder, name);
}

}  // namespace plimsoll::cli
