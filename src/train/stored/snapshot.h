// What of a session goes into a checkpoint, and until when it may be read without a copy.
//
// Weights and optimizer state change only in the calls that update them, so a save may read them in place until the first
// of those calls. A rank's own pieces are listed in the order in which a training step overwrites them: a writer that goes
// along the list stays ahead of the update for as long as possible.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "train/session/session.h"

namespace plimsoll::train {

// The elements [begin, begin + data) of a whole tensor that this rank has.
struct HeldPiece {
  std::string name;    // in the checkpoint
  std::string buffer;  // in the session
  base::TensorType whole;
  std::int64_t begin = 0;       // bytes
  std::int64_t bytes = 0;       // zero: this rank has nothing of it
  std::span<std::byte> data{};  // empty where it lies on a drive:
  std::int64_t held = 0;        // there it begins so many bytes into the buffer
};

// The first rank that has the buffer.
std::int32_t first_holder(const Session& session, const std::string& buffer);

// Everything that outlives a step and cannot be made again, as this rank holds it. Settles the session first, here and below.
std::vector<HeldPiece> held_pieces(Session& session, plan::Access access = plan::Access::update);
// What a checkpoint of all ranks takes.
base::Bytes checkpoint_bytes(const Session& session);
// What this rank writes, to be read: of a shard all, of what several ranks hold alike one share each.
std::vector<HeldPiece> own_pieces(Session& session);

// The session must outlive what they give.
std::vector<checkpoint::TensorTarget> targets_of(const Session& session, const std::vector<HeldPiece>& pieces);
std::vector<checkpoint::TensorSource> sources_of(const Session& session, const std::vector<HeldPiece>& pieces);

struct Snapshot {
  std::vector<HeldPiece> pieces;   // this rank's own, but for the step scalars
  std::vector<HeldPiece> scalars;  // this rank's share of them; every step begins by changing them
  // For the calls of programs that write some of the pieces: how many must have been read before.
  std::unordered_map<const plan::Call*, std::size_t> needed_before;
  // Of the train program's, those that write nothing where no update waits (Session::update_waits): a drive is written all the same.
  std::unordered_set<const plan::Call*> of_waiting_update;
};

Snapshot snapshot_of(Session& session);

// Before a snapshot made earlier is read: where memory is a device's, what the host sees of it is brought up to date.
void look_again(Session& session, const Snapshot& snapshot);

}  // namespace plimsoll::train
