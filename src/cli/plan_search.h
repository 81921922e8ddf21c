// `plimsoll plan` where there is something to decide: the best strategies side by side, why their neighbours lost, and what a whole
// training would take.
#pragma once

#include "cli/commands.h"
#include "config/run.h"
#include "io/file_system.h"

namespace plimsoll::cli {

void plan_search(io::FileSystem& file_system, const config::Run& run, const PlanOptions& options);

// A run that leaves its strategy to the planner, decided for this machine's ranks, memory and cores; others stay as they are. Says what was
// decided in a few lines.
struct Decided {
  config::Run run;
  std::string words;      // five lines for people; empty where nothing was open
  std::string json = {};  // the same and the candidates, to be stored with the run
};
Decided decide_here(io::FileSystem& file_system, const config::Run& run, std::int64_t ranks);

}  // namespace plimsoll::cli
