#include "formats/safetensors_writer.h"

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

base::Json offsets_json(std::int64_t begin, std::int64_t end) { return base::Json::array({base::Json(begin), base::Json(end)}); }

base::Json shape_json(const std::vector<std::int64_t>& shape) {
  base::Json json = base::Json::array();
  for (const std::int64_t extent : shape) json.push(extent);
  return json;
}

io::Path folder_of(const io::Path& path) { return path.parent_path().empty() ? io::Path(".") : path.parent_path(); }

}  // namespace

std::string safetensors_header(std::vector<TensorSpec>& tensors, const SafetensorsWriter::Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name; });
  base::JsonObject header;
  if (!metadata.empty()) {
    base::Json pairs = base::Json::object();
    for (const auto& [key, value] : metadata) pairs.set(key, value);
    header.add("__metadata__", std::move(pairs));
  }
  std::int64_t reached = 0;
  for (const TensorSpec& tensor : tensors) {
    PLIMSOLL_CHECK(tensor.name != "__metadata__" && !header.find(tensor.name), "tensor {} twice in one file", tensor.name);
    const std::int64_t end = reached + bytes_of(tensor);
    base::Json entry = base::Json::object({{"dtype", name_of(tensor.dtype)}, {"shape", shape_json(tensor.shape)}});
    entry.set("data_offsets", offsets_json(reached, end));
    header.add(tensor.name, std::move(entry));
    reached = end;
  }
  std::string text = base::write_json(base::Json(std::move(header)));
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > Safetensors::kMaxHeaderBytes) {
    base::bad_input("{} tensors need a safetensors header of {} bytes; the format allows {}: write several files", tensors.size(),
                    text.size(), Safetensors::kMaxHeaderBytes);
  }
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

SafetensorsWriter::SafetensorsWriter(io::FileSystem& file_system, const io::Path& path, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata)
    : file_system_(file_system), path_(path), temporary_(path), tensors_(std::move(tensors)) {
  temporary_ += ".tmp";
  const std::string header = safetensors_header(tensors_, metadata);
  auto reached = static_cast<std::int64_t>(header.size());
  for (const TensorSpec& tensor : tensors_) {
    const std::int64_t size = bytes_of(tensor);
    places_.emplace(tensor.name, Place{.begin = reached, .size = size});
    reached += size;
  }
  if (file_system_.status(temporary_)) file_system_.remove(temporary_);  // left by a crash
  file_.emplace(file_system_, temporary_, io::OpenMode::create);
  try {
    file_->write_at(0, io::as_bytes(header));
  } catch (const base::Error&) {
    abandon();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { abandon(); }

void SafetensorsWriter::abandon() noexcept {
  if (!file_) return;
  file_.reset();
  try {
    file_system_.remove(temporary_);
  } catch (const base::Error&) {  // whoever gave up has already said why
  }
}

void SafetensorsWriter::write(std::string_view tensor, std::int64_t offset, std::span<const std::byte> data) {
  const auto found = places_.find(tensor);
  PLIMSOLL_CHECK(file_ && found != places_.end(), "tensor {} is not in {}", tensor, path_.string());
  Place& place = found->second;
  PLIMSOLL_CHECK(offset >= 0 && offset + std::ssize(data) <= place.size, "bytes {}+{} of tensor {} with {}", offset, data.size(), tensor,
                 place.size);
  file_->write_at(place.begin + offset, data);
  place.written += std::ssize(data);
}

void SafetensorsWriter::finish() {
  PLIMSOLL_CHECK(file_.has_value(), "{} finished twice", path_.string());
  for (const auto& [name, place] : places_) {
    PLIMSOLL_CHECK(place.written == place.size, "tensor {} of {}: {} of {} bytes written", name, path_.string(), place.written, place.size);
  }
  try {
    file_->sync();
    file_->close();
    file_system_.rename(temporary_, path_);
  } catch (const base::Error&) {
    abandon();
    throw;
  }
  file_.reset();
  file_system_.sync_directory(folder_of(path_));
}

}  // namespace plimsoll::formats
