// Tensors spread over several safetensors files, told apart by an index: `model.safetensors.index.json` maps each
// tensor's name to the file that holds it. One file without an index is a set too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors_writer.h"

namespace plimsoll::formats {

class SafetensorsSet {
 public:
  // Views are remembered by address, which moving keeps and copying would not.
  SafetensorsSet(SafetensorsSet&&) = default;
  SafetensorsSet& operator=(SafetensorsSet&&) = default;

  // `path` is a safetensors file, an index, or a folder: there, model.safetensors, else its index, else the one
  // *.safetensors file. Files named by an index must lie beside it.
  static SafetensorsSet open(io::FileSystem& file_system, const io::Path& path);

  const std::string& name() const { return name_; }
  const std::vector<Safetensors>& files() const { return files_; }
  std::vector<std::string_view> names() const;            // sorted
  const TensorView* find(std::string_view tensor) const;  // nullptr when absent
  const TensorView& at(std::string_view tensor) const;    // throws when absent

 private:
  SafetensorsSet() = default;
  void add_file(Safetensors file);
  static SafetensorsSet open_index(io::FileSystem& file_system, const io::Path& index);

  std::string name_;
  std::vector<Safetensors> files_;
  std::map<std::string, std::pair<std::size_t, const TensorView*>, std::less<>> tensors_;  // with the file's number
};

struct ShardOptions {
  std::int64_t max_bytes = 5'000'000'000;  // of one file's tensors; a larger tensor has a file to itself
  std::string stem = "model";
  SafetensorsWriter::Metadata metadata = {{"format", "pt"}};  // transformers refuses files without it
};

// Fills `folder` with STEM.safetensors, or with STEM-00001-of-0000N.safetensors and an index when one file is too small.
// Tensors go to files in the order given; the index is written last, by finish().
class SafetensorsSetWriter {
 public:
  SafetensorsSetWriter(io::FileSystem& file_system, const io::Path& folder, const std::vector<TensorSpec>& tensors,
                       const ShardOptions& options = {});

  void write(std::string_view tensor, std::int64_t offset, std::span<const std::byte> data);
  void finish();

 private:
  io::FileSystem& file_system_;
  io::Path folder_;
  ShardOptions options_;
  std::int64_t total_bytes_ = 0;
  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;
};

}  // namespace plimsoll::formats
