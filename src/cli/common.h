// What the commands share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "collectives/transport.h"
#include "config/run.h"
#include "io/file_system.h"
#include "plan/plan.h"
#include "train/setup/setup.h"
#include "train/stored/stored_model.h"

namespace plimsoll::cli {

// The run file with its overrides; a model directory that it names is read.
config::Run read_run(io::FileSystem& file_system, const RunOptions& options);

// Where a model is stored, and the run that says how to compute with it.
struct Source {
  train::ModelPlace place;
  config::Run run;
  io::Path kept;  // the folder in which the run kept its tokenizer; empty: it is no run's model
};

// As read_run, but `options.file` may also be a run's folder, a checkpoint or a Hugging Face folder.
Source read_source(io::FileSystem& file_system, const RunOptions& options);

// Where given values and the tokenizer say different things.
void say_notes(const config::Run& run);
// The command that makes another process of this program join as a rank, where ranks are to be processes: this process's own command line.
std::vector<std::string> command_of_ranks(bool processes);
// Hears what ended them.
void complain_of_ranks(const std::string& text);
// Whether this rank is the one that prints.
bool speaks(const collectives::Transport* transport);
// How full the device is while the program runs, on the output.
void show_waterline(const plan::Plan& plan, std::string_view program, const train::Capacity& capacity);

// Says on the error stream which parameters a model folder lacks and how they start.
// Newer checkpoints that were not taken.
void say_passed_over(const std::vector<std::string>& problems);
void say_absent(const std::string& folder, const std::vector<std::string>& parameters);

}  // namespace plimsoll::cli
