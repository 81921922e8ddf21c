#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "formats/safetensors_header.h"

namespace plimsoll::formats {

namespace {

// Read and converted at once.
constexpr std::size_t kPieceElements = std::size_t{1} << 20;

std::span<const std::byte> bytes_of(const TensorView& view, std::int64_t first, std::int64_t count) {
  const std::int64_t size = bits_of(view.dtype) / 8;
  PLIMSOLL_CHECK(first >= 0 && count >= 0 && (first + count) * size <= std::ssize(view.data), "elements {}+{} of {} of {}", first, count,
                 view.name, to_string(view));
  return view.data.subspan(static_cast<std::size_t>(first * size), static_cast<std::size_t>(count * size));
}

constexpr std::size_t kLengthBytes = 8;

// Bytes of a tensor, or nothing when the count, or its number of bits, leaves 63 bits or the bits fill no whole bytes.
std::optional<std::int64_t> checked_bytes(const TensorSpec& spec) {
  std::int64_t bits = 1;
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, bits_of(spec.dtype), &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Every tensor's range is as long as its type and shape say, and the ranges, one behind the other, fill the data.
void check_ranges(const std::string& file, const std::vector<HeaderEntry>& entries, std::int64_t data_bytes) {
  std::int64_t reached = 0;
  for (const HeaderEntry& entry : entries) {
    const std::string& name = entry.spec.name;
    if (entry.end < entry.begin)
      base::bad_input("'{}': tensor '{}' ends at byte {}, before it begins at {}", file, name, entry.end, entry.begin);
    if (entry.begin != reached) {
      base::bad_input(
          "'{}': tensor '{}' begins at byte {} of the data; expected {}, where the one before it ends: tensors may leave no hole and "
          "not overlap",
          file, name, entry.begin, reached);
    }
    const auto bytes = checked_bytes(entry.spec);
    if (!bytes) base::bad_input("'{}': tensor '{}' of {} has no size in whole bytes", file, name, to_string(entry.spec));
    if (*bytes != entry.end - entry.begin) {
      base::bad_input("'{}': tensor '{}' of {} takes {} bytes, but the header gives it {}", file, name, to_string(entry.spec), *bytes,
                      entry.end - entry.begin);
    }
    reached = entry.end;
  }
  if (reached != data_bytes) {
    base::bad_input("'{}': the header describes {} bytes of tensors, but {} follow it; the file is {}", file, reached, data_bytes,
                    data_bytes < reached ? "cut short" : "too long");
  }
}

std::string_view header_of(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes) {
    base::bad_input("'{}' has {} bytes; a safetensors file begins with {} that give its header's length", file, bytes.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > Safetensors::kMaxHeaderBytes) {
    base::bad_input("'{}' says that its header has {} bytes; a safetensors header has at most {}", file, length,
                    Safetensors::kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    base::bad_input("'{}' says that its header has {} bytes, but only {} follow; the file is cut short or no safetensors file", file,
                    length, bytes.size() - kLengthBytes);
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<std::size_t>(length)};
}

template <typename T>
std::int32_t narrow_element(const TensorView& view, std::size_t index) {
  T value;
  std::memcpy(&value, view.data.data() + index * sizeof value, sizeof value);
  if (!std::in_range<std::int32_t>(value))
    base::bad_input("tensor '{}' has {} at element {}; expected a 32-bit integer", view.name, value, index);
  return static_cast<std::int32_t>(value);
}

std::int32_t integer_element(const TensorView& view, std::size_t index) {
  switch (view.dtype) {
    case FileDType::i64: return narrow_element<std::int64_t>(view, index);
    case FileDType::u32: return narrow_element<std::uint32_t>(view, index);
    case FileDType::i32: return narrow_element<std::int32_t>(view, index);
    case FileDType::i16: return narrow_element<std::int16_t>(view, index);
    case FileDType::u16: return narrow_element<std::uint16_t>(view, index);
    case FileDType::i8: return narrow_element<std::int8_t>(view, index);
    case FileDType::boolean:
    case FileDType::u8: return narrow_element<std::uint8_t>(view, index);
    default: base::bad_input("tensor '{}' is {}; expected integers", view.name, to_string(view));
  }
}

}  // namespace

std::int64_t elements_of(const TensorSpec& spec) {
  std::int64_t count = 1;
  for (const std::int64_t extent : spec.shape) count *= extent;
  return count;
}

std::int64_t bytes_of(const TensorSpec& spec) {
  const auto bytes = checked_bytes(spec);
  PLIMSOLL_CHECK(bytes.has_value(), "tensor {} of {}", spec.name, to_string(spec));
  return *bytes;
}

std::string to_string(const TensorSpec& spec) { return fmt::format("{}[{}]", name_of(spec.dtype), fmt::join(spec.shape, ", ")); }

Safetensors Safetensors::open(io::FileSystem& file_system, const io::Path& path) { return parse(file_system.map(path), path.string()); }

Safetensors Safetensors::parse(io::Mapping mapping, const std::string& name) {
  const auto shared = std::make_shared<const io::Mapping>(std::move(mapping));
  const std::span<const std::byte> bytes = shared->bytes();
  const std::string_view header = header_of(bytes, name);
  SafetensorsHeader read = read_safetensors_header(header, name);
  std::vector<HeaderEntry>& entries = read.entries;
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.spec.name) < std::tie(b.begin, b.end, b.spec.name);  // empty tensors share their place
  });
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header.size());
  check_ranges(name, entries, std::ssize(data));
  Safetensors file;
  file.metadata_ = std::move(read.metadata);
  for (HeaderEntry& entry : entries) {
    file.index_.emplace(entry.spec.name, file.tensors_.size());
    const auto range = data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
    file.tensors_.push_back({std::move(entry.spec), range, shared});
  }
  file.name_ = name;
  file.mapping_ = shared;
  return file;
}

const TensorView* Safetensors::find(std::string_view tensor) const {
  if (mapping_) mapping_->check_size();  // whoever looks a tensor up is about to read it
  const auto found = index_.find(tensor);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& Safetensors::at(std::string_view tensor) const {
  const TensorView* found = find(tensor);
  if (!found) base::bad_input("'{}' holds no tensor '{}'", name_, tensor);
  return *found;
}

ElementReader::~ElementReader() { let_go(); }

std::span<const std::byte> ElementReader::read(std::int64_t first, std::int64_t count) {
  let_go();
  const std::span<const std::byte> part = bytes_of(*view_, first, count);
  if (!view_->file || view_->file->in_memory(part)) return mapped_ = part;
  buffer_.resize(part.size());
  view_->file->read(part, buffer_.data());
  return buffer_;
}

void ElementReader::let_go() {
  if (view_->file) view_->file->let_go(std::exchange(mapped_, {}));
}

void read_f32(const TensorView& view, std::int64_t first, std::span<float> out) {
  if (!converts_to_f32(view.dtype)) base::bad_input("tensor '{}' is {}, which Plimsoll does not turn into f32", view.name, to_string(view));
  ElementReader reader(view);
  for (std::size_t done = 0; done < out.size(); done += kPieceElements) {
    const std::span<float> piece = out.subspan(done, std::min(kPieceElements, out.size() - done));
    const std::int64_t at = first + static_cast<std::int64_t>(done);
    if (view.dtype == FileDType::f32 && view.file) {  // nothing to convert
      view.file->copy(bytes_of(view, at, std::ssize(piece)), std::as_writable_bytes(piece).data());
    } else {
      read_f32(view.dtype, reader.read(at, std::ssize(piece)), 0, piece);
    }
  }
}

std::vector<float> to_f32(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(elements_of(view)));
  read_f32(view, 0, values);
  return values;
}

std::vector<std::int32_t> to_i32(const TensorView& view) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(elements_of(view)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = integer_element(view, i);
  return values;
}

}  // namespace plimsoll::formats
