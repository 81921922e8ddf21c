// Writes one safetensors file, a piece at a time, so that no second copy of a model is ever needed.
//
// All names, types and shapes are known at the start; the header is then final and every tensor has its place. Pieces
// may come in any order. The file carries a temporary name until finish() has seen every byte written and synced, so a
// reader finds it whole or not at all; a writer that goes away unfinished takes its file with it.
//
// The bytes are those the reference writer makes from the same tensors: wide types first, then by name; the header in
// its compact form, padded with spaces to a multiple of 8.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace plimsoll::formats {

class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  SafetensorsWriter(io::FileSystem& file_system, const io::Path& path, std::vector<TensorSpec> tensors, const Metadata& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  const std::vector<TensorSpec>& tensors() const { return tensors_; }  // in the file's order

  // `offset` counts bytes within the tensor. Every byte must be written exactly once before finish().
  void write(std::string_view tensor, std::int64_t offset, std::span<const std::byte> data);
  void write(std::string_view tensor, std::span<const std::byte> data) { write(tensor, 0, data); }

  void finish();

 private:
  struct Place {
    std::int64_t begin = 0;  // in the file
    std::int64_t size = 0;
    std::int64_t written = 0;
  };

  void abandon() noexcept;

  io::FileSystem& file_system_;
  io::Path path_;
  io::Path temporary_;
  std::vector<TensorSpec> tensors_;
  std::map<std::string, Place, std::less<>> places_;
  std::optional<io::File> file_;
};

// The length field and the padded header of a file with these tensors, which are put in the file's order.
std::string safetensors_header(std::vector<TensorSpec>& tensors, const SafetensorsWriter::Metadata& metadata);

}  // namespace plimsoll::formats
