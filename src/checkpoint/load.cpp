#include "checkpoint/load.h"

#include <algorithm>
#include <map>

#include "checkpoint/data_file.h"
#include "checkpoint/folder.h"
#include "io/files.h"

namespace plimsoll::checkpoint {

namespace {

// Whole, but not this run's: not to be passed over.
class Mismatch : public base::Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void mismatch(fmt::format_string<Args...> format, Args&&... args) {
  throw Mismatch(base::ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

void check_entry(const Checkpoint& checkpoint, const std::map<std::string, io::EntryKind>& entries, std::int64_t file) {
  const auto entry = entries.find(data_name(file));
  if (entry == entries.end()) base::bad_input("'{}' lacks {}, which its manifest lists", checkpoint.path.string(), data_name(file));
  if (entry->second != io::EntryKind::file) base::bad_input("'{}' is not a plain file", (checkpoint.path / data_name(file)).string());
}

const TensorRecord& record_for(const Checkpoint& checkpoint, const TensorTarget& target) {
  const TensorRecord* record = checkpoint.manifest.find(target.name);
  if (!record) mismatch("'{}' holds no tensor '{}', which this run needs", checkpoint.path.string(), target.name);
  if (record->dtype != target.dtype || record->shape != target.shape) {
    mismatch("'{}': tensor '{}' is {}; this run's is {}", checkpoint.path.string(), target.name, describe(record->dtype, record->shape),
             describe(target.dtype, target.shape));
  }
  PLIMSOLL_CHECK(target.begin >= 0 && target.begin + target.bytes() <= record->bytes(), "bytes {}+{} of tensor {}", target.begin,
                 target.bytes(), target.name);
  return *record;
}

void check_claims(const Checkpoint& checkpoint, std::span<const TensorTarget> targets) {
  std::vector<std::string_view> claimed;
  for (const TensorTarget& target : targets) claimed.push_back(target.name);
  std::sort(claimed.begin(), claimed.end());
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    if (std::binary_search(claimed.begin(), claimed.end(), std::string_view(record.name))) continue;
    mismatch("'{}' holds a tensor '{}' that this run does not have", checkpoint.path.string(), record.name);
  }
}

// By file, in the order of the bytes.
std::vector<std::vector<Move>> plan_moves(const Checkpoint& checkpoint, std::span<const TensorTarget> targets) {
  std::vector<std::vector<Move>> moves(checkpoint.manifest.files.size());
  for (const TensorTarget& target : targets) {
    const std::int64_t target_end = target.begin + target.bytes();
    for (const Piece& piece : record_for(checkpoint, target).pieces) {
      const std::int64_t begin = std::max(piece.begin, target.begin);
      const std::int64_t end = std::min(piece.begin + piece.bytes, target_end);
      if (begin >= end) continue;
      Move move{.first = piece.offset + begin - piece.begin, .end = piece.offset + end - piece.begin};
      if (target.elsewhere.write) {
        move.give = [&target, skipped = begin - target.begin](std::int64_t from, std::span<const std::byte> data) {
          target.elsewhere.write(skipped + from, data);
        };
      } else {
        move.to = target.data.data() + (begin - target.begin);
      }
      moves[static_cast<std::size_t>(piece.file)].push_back(std::move(move));
    }
  }
  for (auto& of_file : moves) std::sort(of_file.begin(), of_file.end(), [](const Move& a, const Move& b) { return a.first < b.first; });
  return moves;
}

}  // namespace

Checkpoint open(io::FileSystem& file_system, const io::Path& path) {
  std::map<std::string, io::EntryKind> entries;
  for (const io::Entry& entry : file_system.list(path)) entries.emplace(entry.name, entry.kind);
  const io::Path manifest = path / kManifestName;
  const auto entry = entries.find(std::string(kManifestName));
  if (entry == entries.end()) base::bad_input("'{}' is no checkpoint: it has no {}", path.string(), kManifestName);
  if (entry->second != io::EntryKind::file) base::bad_input("'{}' is not a plain file", manifest.string());
  Checkpoint checkpoint{path, parse_manifest(io::read_text(file_system, manifest, kMaxManifestBytes), manifest.string())};
  if (const auto step = step_of(path.filename().string()); step && *step != checkpoint.manifest.step) {
    base::bad_input("'{}' holds a checkpoint of step {}", path.string(), checkpoint.manifest.step);
  }
  for (std::int64_t file = 0; file < std::ssize(checkpoint.manifest.files); ++file) {
    check_entry(checkpoint, entries, file);
    const auto status = file_system.status(path / data_name(file));
    const std::int64_t expected = checkpoint.manifest.files[static_cast<std::size_t>(file)].bytes;
    if (!status || status->size != expected) {
      base::bad_input("'{}' has {} bytes; its manifest says {}", (path / data_name(file)).string(), status ? status->size : 0, expected);
    }
  }
  return checkpoint;
}

void verify(io::FileSystem& file_system, const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest;
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    read_blocks(file_system, checkpoint.path / data_name(static_cast<std::int64_t>(file)), manifest.files[file], manifest.block_bytes, {},
                Blocks::all);
  }
}

void check_identity(const Checkpoint& checkpoint, const Identity& expected) {
  const Identity& found = checkpoint.manifest.identity;
  if (!expected.run.empty() && found.run != expected.run) {
    mismatch("'{}' belongs to another run ('{}'; this one is '{}'): give this run a folder of its own, or continue that run",
             checkpoint.path.string(), found.run, expected.run);
  }
  if (!expected.config.empty() && found.config != expected.config) {
    mismatch(
        "'{}' was saved with other settings (digest {}; these have {}), so training would not continue as it began: restore the settings, "
        "or "
        "give this run a folder of its own",
        checkpoint.path.string(), found.config, expected.config);
  }
}

void load(io::FileSystem& file_system, const Checkpoint& checkpoint, std::span<const TensorTarget> targets, Unclaimed unclaimed) {
  if (unclaimed == Unclaimed::refuse) check_claims(checkpoint, targets);
  const auto moves = plan_moves(checkpoint, targets);
  const Manifest& manifest = checkpoint.manifest;
  for (std::size_t file = 0; file < moves.size(); ++file) {
    if (moves[file].empty()) continue;
    read_blocks(file_system, checkpoint.path / data_name(static_cast<std::int64_t>(file)), manifest.files[file], manifest.block_bytes,
                moves[file], Blocks::moved);
  }
}

Search newest_valid(io::FileSystem& file_system, const io::Path& folder, const Identity& expected) {
  return load_newest(file_system, folder, expected, [&](const Checkpoint& checkpoint) { verify(file_system, checkpoint); });
}

// Tries the folder's checkpoints, newest first, until `read` does not throw.
Search load_newest(io::FileSystem& file_system, const io::Path& folder, const Identity& expected,
                   const std::function<void(const Checkpoint&)>& read) {
  Search search;
  for (const std::int64_t step : list_steps(file_system, folder)) {
    try {
      Checkpoint checkpoint = open(file_system, folder / step_name(step));
      check_identity(checkpoint, expected);
      read(checkpoint);
      search.found = std::move(checkpoint);
      return search;
    } catch (const NewerFormat&) {
      throw;
    } catch (const Mismatch&) {
      throw;
    } catch (const base::Error& error) {
      search.problems.push_back(fmt::format("the checkpoint of step {} cannot be used: {}", step, error.what()));
    }
  }
  return search;
}

}  // namespace plimsoll::checkpoint
