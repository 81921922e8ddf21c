// `plimsoll plan --schedule`: pipeline schedules drawn for a run's ranks, micro-batches and chunks. Nothing is lowered, so this
// also shows what cannot be run here.
#pragma once

#include "cli/commands.h"
#include "config/run.h"
#include "io/file_system.h"

namespace plimsoll::cli {

void plan_schedules(io::FileSystem& file_system, const config::Run& run, const PlanOptions& options);

}  // namespace plimsoll::cli
