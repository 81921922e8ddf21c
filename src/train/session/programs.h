// The programs of a session: a table of those that it may have by itself, and those that whoever makes it adds. Names are there once; what
// runs around what follows from each program's cadence and from what it reads and writes (plan/programs.h).
#pragma once

#include <vector>

#include "train/session/session.h"

namespace plimsoll::train {

// Those that the options ask for, with their graphs; training comes first.
std::vector<ProgramSource> programs_of(const SessionOptions& options);

}  // namespace plimsoll::train
