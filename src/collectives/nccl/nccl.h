// One GPU per rank, by NCCL. Ranks meet by address and port (launch.h, rendezvous.h).
//
// Unproven beyond one rank: NCCL refuses two ranks on one GPU, and no machine with two was at hand. What one GPU can show is tested.
//
// What differs from the other transports:
// - The order of sums is NCCL's own, so results equal the others' to rounding. With `canonical`, members exchange pieces and each folds
//   its share in member order: the same bits as `local`, for more memory traffic.
// - Tensors may lie in the memory of the host too: they are then copied there and back, which is for what is small.
// - Inputs must be complete on the device when a call is made; results are complete when it returns.
// - Calls are not compared before data moves. A call that does not complete within Limits::progress is compared then, through the
//   rendezvous; lost ranks are named by it in Limits::heartbeat.
// - `send` keeps a copy and returns, but the copies of one group leave in order, towards higher members and towards lower ones
//   separately: a schedule that needs more than that deadlocks (and is named).
// - Bytes are those of the closed forms, not counted.
//
// NCCL and CUDA live in a module that is loaded when it is asked for: a machine without them starts the same program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/launch.h"
#include "collectives/transport.h"

namespace plimsoll::collectives::nccl {

struct Options {
  Limits limits{};
  bool canonical = false;
  double join = 60.0;                                     // seconds within which all ranks must have come
  std::function<void(const std::string& text)> say = {};  // as Rendezvous::Options::say
  // Called where a rank is lost and this one cannot be taken down in order: a kernel that waits for the lost one holds up every call that
  // frees memory or a stream. Then the process ends with peer_lost's exit code.
  std::function<void(const Transport& transport, const std::string& loss)> last_words = {};
};

// Why there can be no NCCL here (not built, no library, no driver); nothing when the module loads.
std::optional<std::string> why_missing();

// Meets the others, then takes the GPU launch.local_rank: a rank without one is named by all. Throws bad_input with why_missing().
std::unique_ptr<Transport> join(const Launch& launch, const Options& options);

// The module's entry, under kEntry.
using Entry = Transport* (*)(const Launch&, const Options&);
inline constexpr const char* kEntry = "plimsoll_nccl_join";

}  // namespace plimsoll::collectives::nccl
