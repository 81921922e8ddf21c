// The commands of `plimsoll`, each with its options; app.cpp fills them from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/run.h"

namespace plimsoll::cli {

// What every command that reads a run file takes.
struct RunOptions {
  std::string file;
  std::vector<std::string> overrides;  // --set
  std::string deepspeed;               // a DeepSpeed file to take settings from
  std::int64_t ranks = 0;              // 0: as many as the strategy has
  bool json = false;
};

struct TrainOptions {
  RunOptions run;
  bool processes = false;  // ranks as supervised processes instead of threads
  std::string trace;
  std::string html;        // the page of what ran, beside the one in the run's folder
  bool fresh = false;      // do not resume
  std::int64_t until = 0;  // stop after this step; 0: after all
};

struct PlanOptions {
  RunOptions run;
  std::string out;                     // store the plan
  std::string html;                    // draw it on a page
  bool full = false;                   // print every procedure, buffer and call
  bool passes = false;                 // which passes make the plan
  std::vector<std::string> schedules;  // draw these instead of planning
  std::string svg;                     // and store the drawing
  std::string cluster;                 // plan for this one, with what the run leaves open decided
  std::string planner = "plimsoll";    // how
  double time_limit = 60.0;            // seconds for the search
  bool largest = false;                // say the largest model that fits instead
  double floor = 0.05;                 // share of the devices' rate that the largest model must reach
  double longest_step = 300.0;         // seconds that a step of it may take; 0: any
  bool smallest = false;               // say the smallest cluster that holds the model instead
  double tokens = 0.0;                 // of a whole training; 0: not asked
  double price = 0.0;                  // of a device for an hour; 0: the cluster's
  double co2 = 0.48;                   // kg for a kWh
  double mtbf = 0.0;                   // hours between failures of a device
  std::string storage;                 // bytes a second that checkpoints are saved at; empty: the cluster's
  double restart = 0.0;                // seconds from a failure to the next step; 0: the cluster's
  std::set<std::string> given = {};    // options by name, as "--out"
};

struct SimulateOptions {
  RunOptions run;
  std::string cluster = "this";
  std::string trace;  // a Chrome trace
  std::string html;
  double jitter = 0.0;
  std::uint64_t seed = 1;
  std::vector<std::string> slow;  // "3:1.5": rank 3 takes half as long again
};

struct CalibrateOptions {
  std::string out;  // empty: where "this" is looked for
  std::string scratch = ".";
  config::Device device = config::Device::automatic;
  bool cores = false;  // nothing but how far the cores are apart now
  bool json = false;
};

struct EvalOptions {
  RunOptions run;                       // its file may be a folder
  std::optional<std::int64_t> batches;  // of data.valid; nothing: all of it
  std::vector<std::string> data;        // instead of data.valid
  bool processes = false;               // ranks as supervised processes instead of threads
};

struct GenerateOptions {
  RunOptions run;
  std::string prompt;
  std::vector<std::int32_t> prompt_ids;  // instead of a text
  std::int64_t tokens = 200;
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  std::optional<std::int64_t> seed;  // the run's, unless given
  bool ignore_end = false;
  bool processes = false;  // as above
};

struct ModelFileOptions {
  RunOptions run;     // its file may be a folder
  std::string to;     // a new folder
  std::string dtype;  // empty: as stored
  std::string max_shard = "5GB";
};

struct InspectOptions {
  std::string path;
  std::string other;  // a second plan to compare with
  bool json = false;
};

struct DataOptions {
  std::vector<std::string> inputs;  // text files and patterns
  std::string out;
  std::string tokenizer = "bytes";
  std::string format = "llmc";
  std::string documents = "file";
  std::string field = "text";
  std::string end_token = "auto";  // "auto", "none", an id or a token
  std::int64_t shard_tokens = 0;
  bool force = false;
  bool json = false;
};

void train_command(const TrainOptions& options);
void plan_command(const PlanOptions& options);
void simulate_command(const SimulateOptions& options);
void calibrate_command(const CalibrateOptions& options);
void explain_command(const RunOptions& options);
void eval_command(const EvalOptions& options);
void generate_command(const GenerateOptions& options);
void import_command(const ModelFileOptions& options);
void export_command(const ModelFileOptions& options);
void data_command(const DataOptions& options);
void inspect_command(const InspectOptions& options);

}  // namespace plimsoll::cli
