// Finding and reading checkpoints. Nothing on the medium is trusted: a manifest counts only with its digest, a block
// only with its sum, and a checkpoint that fails either is passed over, in words, for the next older one.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "io/file_system.h"

namespace plimsoll::checkpoint {

struct Checkpoint {
  io::Path path;
  Manifest manifest;
};

// Where bytes [begin, begin + data.size()) of a tensor go.
struct TensorTarget {
  std::string name;
  base::DType dtype = base::DType::f32;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::span<std::byte> data;
  std::int64_t begin = 0;
  // What is not in memory is written a piece at a time; several threads may do so at once.
  struct Elsewhere {
    std::int64_t bytes = 0;
    std::function<void(std::int64_t first, std::span<const std::byte> data)> write = {};
  };
  Elsewhere elsewhere = {};  // instead of `data`

  std::int64_t bytes() const { return elsewhere.write ? elsewhere.bytes : std::ssize(data); }
};

// The manifest, its digest and structure, and that its data files are there with the right sizes.
Checkpoint open(io::FileSystem& file_system, const io::Path& path);
// Reads and sums everything.
void verify(io::FileSystem& file_system, const Checkpoint& checkpoint);
// Throws, naming both, unless the checkpoint is one of that run.
void check_identity(const Checkpoint& checkpoint, const Identity& expected);

enum class Unclaimed { refuse, ignore };  // tensors of the checkpoint that no target asks for

// Fills the targets, reading only the blocks that hold them. After an error their content is undefined.
void load(io::FileSystem& file_system, const Checkpoint& checkpoint, std::span<const TensorTarget> targets,
          Unclaimed unclaimed = Unclaimed::refuse);

struct Search {
  std::optional<Checkpoint> found;
  std::vector<std::string> problems;  // why newer ones were passed over, newest first
};

// The newest checkpoint of the folder that is whole. A damaged one is passed over; one of another run, with other tensors
// or of a newer format is not: it throws, because going on beside it would end in two histories in one folder.
Search newest_valid(io::FileSystem& file_system, const io::Path& folder, const Identity& expected = {});

// As newest_valid and load in one, so that data are read once: what `read` began to fill from a damaged checkpoint it fills again from an
// older one.
Search load_newest(io::FileSystem& file_system, const io::Path& folder, const Identity& expected,
                   const std::function<void(const Checkpoint&)>& read);

}  // namespace plimsoll::checkpoint
