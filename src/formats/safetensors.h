// One safetensors file: 8 bytes of header length, a JSON header, raw little-endian tensors.
//
// The file is mapped and nothing in it is trusted: the header is checked as the reference reader checks it (at most
// 100 MB of strict JSON; dtype x shape equals the byte range; ranges start at 0, leave no hole, do not overlap and end
// with the file) before a single view exists. Stricter than the reference only where it lets two readers disagree: a
// name or key given twice, a tensor written as an array instead of an object, extents beyond 63 bits, an entry of one
// tensor over 64 KiB.
//
//   const Safetensors file = Safetensors::open(file_system, "model.safetensors");
//   const TensorView& view = file.at("lm_head.weight");
//   std::vector<float> weight = to_f32(view);
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file_dtype.h"
#include "io/file_system.h"

namespace plimsoll::formats {

// What a file says about a tensor, and what a writer is told.
struct TensorSpec {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<std::int64_t> shape = {};

  bool operator==(const TensorSpec&) const = default;
};

std::int64_t elements_of(const TensorSpec& spec);  // of a spec whose size is known to be representable
std::int64_t bytes_of(const TensorSpec& spec);
std::string to_string(const TensorSpec& spec);  // "F32[768, 3072]"

struct TensorView : TensorSpec {
  std::span<const std::byte> data;               // lives as long as the file that gave it
  std::shared_ptr<const io::Mapping> file = {};  // of which they are a part; null: they lie in memory
};

class Safetensors {
 public:
  static constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit

  static Safetensors open(io::FileSystem& file_system, const io::Path& path);
  // `name` is what messages call the bytes.
  static Safetensors parse(io::Mapping mapping, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // as they lie in the file
  const TensorView* find(std::string_view tensor) const;               // nullptr when absent
  const TensorView& at(std::string_view tensor) const;                 // throws when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string name_;
  std::shared_ptr<const io::Mapping> mapping_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// The bytes of some elements at a time, for one who converts them: where they are mapped, or read where the drive has to be asked.
class ElementReader {
 public:
  explicit ElementReader(const TensorView& view) : view_(&view) {}
  ElementReader(const ElementReader&) = delete;
  ElementReader& operator=(const ElementReader&) = delete;
  ~ElementReader();

  std::span<const std::byte> read(std::int64_t first, std::int64_t count);  // good until the next call

 private:
  void let_go();

  const TensorView* view_;
  std::span<const std::byte> mapped_;
  std::vector<std::byte> buffer_;
};

// Elements [first, first + out.size()), which lie inside. Throws when the type has no way to f32.
void read_f32(const TensorView& view, std::int64_t first, std::span<float> out);
std::vector<float> to_f32(const TensorView& view);
// Ids and labels: I64, I32, I16, I8, U8, U16, U32, BOOL whose values fit.
std::vector<std::int32_t> to_i32(const TensorView& view);

}  // namespace plimsoll::formats
