#include "checkpoint/save.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>

#include "checkpoint/data_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "io/files.h"

namespace plimsoll::checkpoint {

namespace {

void check_room(io::FileSystem& file_system, const io::Path& folder, std::span<const TensorSource> pieces) {
  std::int64_t bytes = kSpareRoom.count;
  for (const TensorSource& piece : pieces) bytes += piece.bytes();
  if (file_system.free_space(folder).count < bytes) throw io::IoError(fmt::format("save {} bytes in", bytes), folder, ENOSPC);
}

TensorRecord record_of(const TensorSource& piece) { return {.name = piece.name, .dtype = piece.dtype, .shape = piece.shape, .pieces = {}}; }

// The pieces of all writers, tensor by tensor, in order.
std::vector<TensorRecord> join_tensors(std::span<const Part> parts) {
  std::map<std::string, TensorRecord> joined;
  for (const Part& part : parts) {
    for (const TensorRecord& tensor : part.tensors) {
      TensorRecord& whole = joined.try_emplace(tensor.name, TensorRecord{tensor.name, tensor.dtype, tensor.shape, {}}).first->second;
      PLIMSOLL_CHECK(whole.dtype == tensor.dtype && whole.shape == tensor.shape, "writers disagree on tensor {}: {} and {}", tensor.name,
                     describe(whole.dtype, whole.shape), describe(tensor.dtype, tensor.shape));
      whole.pieces.insert(whole.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
    }
  }
  std::vector<TensorRecord> tensors;
  for (auto& [name, tensor] : joined) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::int64_t reached = 0;
    for (const Piece& piece : tensor.pieces) {
      PLIMSOLL_CHECK(piece.begin == reached, "tensor {}: a piece begins at byte {}, where {} is due", name, piece.begin, reached);
      reached += piece.bytes;
    }
    PLIMSOLL_CHECK(reached == tensor.bytes(), "tensor {}: {} of {} bytes were given", name, reached, tensor.bytes());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Manifest make_manifest(const SaveRequest& request, std::span<const Part> parts) {
  Manifest manifest{.identity = request.identity,
                    .step = request.step,
                    .state = request.state,
                    .block_bytes = request.block_bytes,
                    .files = {},
                    .tensors = {}};
  for (const Part& part : parts) {
    PLIMSOLL_CHECK(part.writer == std::ssize(manifest.files), "part of writer {} in place {}", part.writer, manifest.files.size());
    manifest.files.push_back(part.file);
  }
  manifest.tensors = join_tensors(parts);
  return manifest;
}

void write_synced(io::FileSystem& file_system, const io::Path& path, std::string_view text) {
  io::File file(file_system, path, io::OpenMode::create);
  file.write_at(0, io::as_bytes(text));
  file.sync();
  file.close();
}

std::optional<Checkpoint> open_whole(io::FileSystem& file_system, const io::Path& path) {
  if (!file_system.status(path)) return std::nullopt;
  try {
    Checkpoint there = open(file_system, path);
    verify(file_system, there);
    return there;
  } catch (const NewerFormat&) {
    throw;
  } catch (const io::IoError&) {
    throw;  // it may be whole
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

// A checkpoint of this step that is whole and ours makes saving it again needless. Somebody else's is not ours to replace;
// a damaged one only stands in the way.
bool already_saved(io::FileSystem& file_system, const io::Path& path, const Identity& identity) {
  const auto there = open_whole(file_system, path);
  if (there) check_identity(*there, identity);
  return there.has_value();
}

void check_request(const SaveRequest& request) {
  if (request.keep < kFewestKept) {
    base::bad_input("{} checkpoint(s) are to be kept; expected at least {}, so that there is always one to fall back to", request.keep,
                    kFewestKept);
  }
}

// What is on the medium must be what was meant, before anything older goes.
void read_back(io::FileSystem& file_system, const io::Path& path, const Manifest& written) {
  try {
    const Checkpoint there = open(file_system, path);
    if (!(there.manifest == written)) base::bad_input("'{}' reads back as another checkpoint than the one written", path.string());
    verify(file_system, there);
  } catch (const io::IoError&) {
    throw;
  } catch (const base::Error& error) {
    discard(file_system, path);
    base::fail(base::ErrorKind::other, "the checkpoint of step {} did not read back as written and was removed: {}", written.step,
               error.what());
  }
}

void go_on(const SaveRequest& request) {
  if (request.given_up && request.given_up())
    base::fail(base::ErrorKind::other, "the save of step {} was given up before it was done", request.step);
}

// From a synced temporary folder to a verified checkpoint.
void publish(io::FileSystem& file_system, const io::Path& folder, const Manifest& manifest) {
  const io::Path temporary = folder / temporary_name(manifest.step);
  const io::Path path = folder / step_name(manifest.step);
  write_synced(file_system, temporary / kManifestName, write_manifest(manifest));
  file_system.sync_directory(temporary);
  io::remove_tree(file_system, path);  // damaged, or already_saved would have found it
  file_system.rename(temporary, path);
  file_system.sync_directory(folder);
  read_back(file_system, path, manifest);
}

}  // namespace

void begin(io::FileSystem& file_system, const io::Path& folder, std::int64_t step) {
  make_durable_folder(file_system, folder);
  remove_debris(file_system, folder);
  file_system.make_directory(folder / temporary_name(step));
}

Part write_part(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::int64_t writer,
                std::span<const TensorSource> pieces) {
  check_room(file_system, folder, pieces);
  DataFileWriter file(file_system, folder / temporary_name(request.step) / data_name(writer), request.block_bytes);
  Part part{.writer = writer, .file = {}, .tensors = {}};
  for (const TensorSource& piece : pieces) {
    if (request.was_read && !part.tensors.empty()) request.was_read(part.tensors.size());
    go_on(request);
    const std::int64_t offset = piece.elsewhere.read ? file.append(piece.bytes(), piece.elsewhere.read) : file.append(piece.data);
    part.tensors.push_back(record_of(piece));
    if (piece.bytes() > 0) part.tensors.back().pieces.push_back({writer, offset, piece.begin, piece.bytes()});
  }
  if (request.was_read) request.was_read(pieces.size());
  go_on(request);
  part.file = file.finish();
  go_on(request);
  return part;
}

SaveResult commit(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::span<const Part> parts) {
  check_request(request);
  const Manifest manifest = make_manifest(request, parts);
  publish(file_system, folder, manifest);
  SaveResult result{.path = folder / step_name(request.step), .bytes = {manifest.data_bytes()}, .notes = {}};
  result.notes = remove_old(file_system, folder, request.step, request.keep);
  return result;
}

void abandon(io::FileSystem& file_system, const io::Path& folder, std::int64_t step) noexcept {
  try {
    io::remove_tree(file_system, folder / temporary_name(step));
  } catch (const base::Error&) {  // the next save removes it
  }
}

SaveResult save(io::FileSystem& file_system, const io::Path& folder, const SaveRequest& request, std::span<const TensorSource> tensors) {
  check_request(request);
  const io::Path path = folder / step_name(request.step);
  if (already_saved(file_system, path, request.identity)) return {.path = path, .bytes = {}, .already_there = true, .notes = {}};
  const auto start = std::chrono::steady_clock::now();
  try {
    begin(file_system, folder, request.step);
    const Part part = write_part(file_system, folder, request, 0, tensors);
    SaveResult result = commit(file_system, folder, request, std::span(&part, 1));
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  } catch (const base::Error&) {
    abandon(file_system, folder, request.step);
    throw;
  }
}

}  // namespace plimsoll::checkpoint
