// From a run file to what training needs: the session's options, the data, and the check that it fits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/run.h"
#include "data/batch_reader.h"
#include "io/file_system.h"
#include "plan/plan.h"
#include "train/session/session.h"

namespace plimsoll::train {

// What a session is for. All of it follows the run's strategy; where nothing is trained, without what only training needs
// (strategy/forward.h).
struct Programs {
  bool train = true;
  bool evaluate = false;
  std::int32_t evaluation_turns = 1;  // of SessionOptions
  std::optional<Decoding> decode = {};
  bool draw_parameters = true;
  collectives::Transport* transport = nullptr;
  std::optional<strategy::schedules::Schedule> schedule = {};
  base::Bytes data_to_come = {};  // of capacity_of
};

// Where the run computes. `auto` is the GPU where there is one that can be used, else the processor; bad_input when it asks
// for a GPU and the backend is missing.
const executor::Backend& backend_of(const config::Run& run);

// A pipeline schedule from a file, in the shape that the run has; bad_input or not_legal with the line or the item that is wrong.
strategy::schedules::Schedule open_schedule(io::FileSystem& file_system, const std::string& path, const strategy::schedules::Shape& shape);
// The run's schedule, where that is a file; it must be one step of stages that are each on one rank.
std::optional<strategy::schedules::Schedule> schedule_of(io::FileSystem& file_system, const config::Run& run);

// not_legal when the strategy, precision or device of the run cannot be had.
SessionOptions session_options(const config::Run& run, const Programs& programs);

// One line for people: "gpt2, 124.4 M parameters, f32, 32 x 256 tokens a step in 8 micro-batches".
std::string describe(const config::Run& run);

// `files` is data.train or data.valid of the run. Evaluation reads in file order, the short tail included.
std::shared_ptr<const data::BatchReader> open_reader(io::FileSystem& file_system, const config::Run& run,
                                                     const std::vector<std::string>& files, bool evaluation);

// How many samples there are, and a sum over some that lie all over them: which data these are, without reading all of it.
std::string data_digest(const data::BatchReader& reader, const config::Run& run);

// A micro-batch's inputs in the session's memory, for a reader to fill.
data::BatchView batch_view(Session& session, std::string_view program, std::int32_t micro_batch, const config::Run& run);

// What the machine and the run's limits allow.
struct Capacity {
  base::Bytes device;     // memory the arenas and the reserve may take
  base::Bytes reserve;    // beside the arenas: program, libraries, buffers of the data reader
  std::string origin;     // "limits.device", "memory of this machine"
  bool per_rank = true;   // else all ranks share it
  base::Bytes host = {};  // memory of the host for all its ranks, beside the device; zero: what is there
  base::Bytes disk = {};  // for all ranks; zero: what is free
  std::string host_origin = "\"limits.host\"";
  base::Bytes host_reserve = {};  // of a rank's process on the host, where its arena is a device's: program, libraries, data
};

// `data_to_come`: what the process will have in memory of the run's data and does not have yet.
Capacity capacity_of(const config::Run& run, base::Bytes data_to_come = {});

// What the ids of text take that is encoded into memory, by a sample of it: for whoever does not open the data.
base::Bytes data_to_come(io::FileSystem& file_system, const config::Run& run);

// Whether it names the disk tier, be it for what turns out to stay elsewhere.
bool uses_disk(const strategy::Strategy& strategy);

// Why a plan does not fit, with the table of what it needs where.
std::optional<std::string> why_too_large(const plan::Plan& plan, const Capacity& capacity);

// The plan of these options. Where optimal recompute finds no order within the limit there is none: not_legal with what a plan that makes
// everything again needs where, and the nearest strategy that fits.
plan::Plan plan_within(const SessionOptions& options, const config::Run& run);
// The same of a session that will run.
PreparedSession prepare_within(const SessionOptions& options, const config::Run& run);

// not_legal with that, and the nearest strategy that would, when the plan of these options does not fit.
void require_fit(const plan::Plan& plan, const Capacity& capacity, const SessionOptions& options);

// A session for the run on this rank; not_legal where it does not fit, or the drive has no room for what is to be there.
Session make_session(io::FileSystem& file_system, const config::Run& run, const Programs& programs, const Capacity& capacity);

}  // namespace plimsoll::train
