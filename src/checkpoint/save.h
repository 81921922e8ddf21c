// Writing a checkpoint so that a crash at any moment leaves the old one or the new one, never neither and never a mix.
//
//   temporary folder -> data files, each synced -> manifest with their block sums, synced -> folder synced -> renamed to
//   its final name -> parent synced -> read back and verified -> only then old ones go.
//
// save() does all of it. Where several ranks write, each calls write_part() for its pieces between begin() and commit(),
// which one of them calls with everybody's Part:
//
//   begin(..) on one; write_part(.., writer, pieces) on all; Json to_json(part) over the wire; commit(.., parts) on one
//
// Any failure abandons the attempt and leaves earlier checkpoints as they were. A failed sync is never repeated: after
// it the medium may hold anything, so the next attempt writes new files.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/manifest.h"
#include "io/file_system.h"

namespace plimsoll::checkpoint {

// A tensor, or the part of it that starts at byte `begin`. Must not change until it was read (SaveRequest::was_read) or the save is over.
struct TensorSource {
  // What is not in memory is read a piece at a time, on the thread that saves.
  struct Elsewhere {
    std::int64_t bytes = 0;
    std::function<void(std::int64_t first, std::span<std::byte> out)> read = {};
  };

  std::string name;
  base::DType dtype = base::DType::f32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::span<const std::byte> data;
  std::int64_t begin = 0;
  Elsewhere elsewhere = {};  // instead of `data`

  std::int64_t bytes() const { return elsewhere.read ? elsewhere.bytes : std::ssize(data); }
};

struct SaveRequest {
  Identity identity;
  std::int64_t step = 0;
  base::Json state = base::Json::object();
  std::int64_t keep = 2;  // how many to keep, this one included; at least 2
  std::int64_t block_bytes = kBlockBytes;
  std::function<void(std::size_t count)> was_read = {};  // the first `count` tensors may change from now on
  std::function<bool()> given_up = {};                   // asked now and then until the checkpoint has its name: true ends the attempt
};

struct SaveResult {
  io::Path path;
  base::Bytes bytes;               // of data
  double seconds = 0.0;            // from the beginning to the last old one's removal
  bool already_there = false;      // a valid checkpoint of this step and run was found and kept
  std::vector<std::string> notes;  // what went wrong after the commit, such as old ones that could not be removed
};

SaveResult save(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::span<const TensorSource> tensors);

// ---- the same in steps, for several writers

// What one writer wrote: a data file and the pieces in it (Piece::file is the writer's number).
struct Part {
  std::int64_t writer = 0;
  FileRecord file;
  std::vector<TensorRecord> tensors;  // with this writer's pieces only

  bool operator==(const Part&) const = default;
};

base::Json to_json(const Part& part);
Part part_from_json(const base::Json& json);

inline constexpr std::int64_t kFewestKept = 2;  // so that there is always one to fall back to
// Room for the manifest and what a file system needs around data.
inline constexpr base::Bytes kSpareRoom{std::int64_t{1} << 20};

void begin(io::FileSystem& file_system, const io::Path& folder, std::int64_t step);
Part write_part(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::int64_t writer,
                std::span<const TensorSource> pieces);
// `parts` holds one of each writer 0, 1, 2, ...; together they must cover every tensor exactly once.
SaveResult commit(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::span<const Part> parts);
// After a failure on any writer: removes the temporary folder, as far as that is possible.
void abandon(io::FileSystem& file_system, const io::Path& folder, std::int64_t step) noexcept;

}  // namespace plimsoll::checkpoint
