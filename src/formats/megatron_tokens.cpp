#include "formats/megatron_tokens.h"

#include <array>
#include <string_view>

#include "formats/mapped_tokens.h"

namespace plimsoll::formats {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "MMIDIDX\0\0"sv;
constexpr std::int64_t kIndexHeaderBytes = 34;

struct Index {
  IdWidth width = IdWidth::u16;
  std::int64_t sequences = 0;
  std::int64_t marks = 0;
  std::span<const std::byte> lengths;
  std::span<const std::byte> offsets;
  std::span<const std::byte> documents;

  std::int64_t length(std::int64_t i) const { return load<std::int32_t>(lengths.data() + i * 4); }
  std::int64_t offset(std::int64_t i) const { return load<std::int64_t>(offsets.data() + i * 8); }
  std::int64_t mark(std::int64_t i) const { return load<std::int64_t>(documents.data() + i * 8); }
};

bool is_index(io::FileSystem& file_system, const io::Path& path) {
  const auto status = file_system.status(path);
  if (!status || status->kind != io::EntryKind::file) return false;
  std::array<std::byte, kMagic.size()> head{};
  io::File(file_system, path, io::OpenMode::read).read_at(0, head);
  return std::memcmp(head.data(), kMagic.data(), kMagic.size()) == 0;
}

IdWidth width_of(std::uint8_t code, const std::string& name) {
  switch (code) {
    case 1: return IdWidth::u8;
    case 3: return IdWidth::i16;
    case 4: return IdWidth::i32;
    case 5: return IdWidth::i64;
    case 8: return IdWidth::u16;
    default: base::bad_input("'{}' says its ids have type {}; expected 1 (u8), 3 (i16), 4 (i32), 5 (i64) or 8 (u16)", name, code);
  }
}

Index parse_index(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size < kIndexHeaderBytes)
    base::bad_input("'{}' has {} bytes; the header of a Megatron index alone has {}", name, size, kIndexHeaderBytes);
  const auto version = load<std::uint64_t>(bytes.data() + 9);
  if (version != 1) base::bad_input("'{}' is a Megatron index of version {}; expected 1", name, version);
  Index index;
  index.width = width_of(load<std::uint8_t>(bytes.data() + 17), name);
  const auto sequences = load<std::uint64_t>(bytes.data() + 18);
  const auto marks = load<std::uint64_t>(bytes.data() + 26);
  // Bounded by the file before any arithmetic, so that none of it can overflow.
  const auto limit = static_cast<std::uint64_t>(size);
  const bool plausible = sequences <= limit / 12 && marks <= limit / 8;
  index.sequences = plausible ? static_cast<std::int64_t>(sequences) : 0;
  index.marks = plausible ? static_cast<std::int64_t>(marks) : 0;
  const std::int64_t expected = kIndexHeaderBytes + index.sequences * 12 + index.marks * 8;
  if (!plausible || (size != expected && size != expected + index.sequences)) {
    base::bad_input(
        "'{}' says it lists {} sequences and {} document marks, but has {} bytes; the index is cut short or its header is wrong", name,
        sequences, marks, size);
  }
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  };
  index.lengths = part(kIndexHeaderBytes, index.sequences * 4);
  index.offsets = part(kIndexHeaderBytes + index.sequences * 4, index.sequences * 8);
  index.documents = part(kIndexHeaderBytes + index.sequences * 12, index.marks * 8);
  return index;
}

// Where each sequence begins in the row of all tokens; the last entry is their number. Fills the layout's runs.
std::vector<std::int64_t> lay_out_sequences(const Index& index, const MegatronPaths& paths, std::int64_t ids_size, TokenLayout& layout) {
  const std::int64_t width = size_of(index.width);
  std::vector<std::int64_t> begins{0};
  begins.reserve(static_cast<std::size_t>(index.sequences) + 1);
  std::int64_t next_offset = -1;  // where the current run could go on
  for (std::int64_t i = 0; i < index.sequences; ++i) {
    const std::int64_t length = index.length(i);
    const std::int64_t offset = index.offset(i);
    if (length < 0 || offset < 0 || offset > ids_size || length > (ids_size - offset) / width) {
      base::bad_input("'{}' puts sequence {} ({} tokens of {} bytes) at byte {}, but '{}' has {} bytes", paths.index.string(), i, length,
                      width, offset, paths.ids.string(), ids_size);
    }
    if (length > 0 && offset != next_offset) layout.runs.push_back({begins.back(), offset});
    if (length > 0) next_offset = offset + length * width;
    begins.push_back(begins.back() + length);
  }
  return begins;
}

std::vector<std::int64_t> find_documents(const Index& index, const std::vector<std::int64_t>& begins, const std::string& name) {
  std::vector<std::int64_t> starts;
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < index.marks; ++i) {
    const std::int64_t mark = index.mark(i);
    const bool in_place = (i > 0 || mark == 0) && (i + 1 < index.marks || mark == index.sequences);
    if (!in_place || mark < previous || mark > index.sequences) {
      base::bad_input("'{}' has document mark {} = {}; marks must rise from 0 to the number of sequences, {}", name, i, mark,
                      index.sequences);
    }
    previous = mark;
    const std::int64_t start = begins[static_cast<std::size_t>(mark)];
    const bool empty_so_far = !starts.empty() && starts.back() == start;
    if (start < begins.back() && !empty_so_far) starts.push_back(start);
  }
  return starts;
}

}  // namespace

std::optional<MegatronPaths> find_megatron(io::FileSystem& file_system, const io::Path& path) {
  MegatronPaths paths{path, path};
  if (path.extension() == ".bin" || path.extension() == ".idx") {
    paths.ids.replace_extension(".bin");
    paths.index.replace_extension(".idx");
  } else {
    if (file_system.status(path)) return std::nullopt;  // a file in its own right
    paths.ids += ".bin";
    paths.index += ".idx";
  }
  if (!is_index(file_system, paths.index)) return std::nullopt;
  return paths;
}

std::unique_ptr<TokenSource> open_megatron(io::FileSystem& file_system, const MegatronPaths& paths) {
  const io::Mapping index_mapping = file_system.map(paths.index);
  const Index index = parse_index(index_mapping.bytes(), paths.index.string());
  io::Mapping ids = file_system.map(paths.ids);
  TokenLayout layout{.file = paths.ids.string(), .width = index.width, .tokens = 0, .runs = {}};
  const std::vector<std::int64_t> begins = lay_out_sequences(index, paths, static_cast<std::int64_t>(ids.bytes().size()), layout);
  layout.tokens = begins.back();
  if (layout.tokens == 0) base::bad_input("'{}' holds no tokens", paths.index.string());
  layout.document_starts = find_documents(index, begins, paths.index.string());
  return std::make_unique<MappedTokens>(std::move(ids), std::move(layout));
}

}  // namespace plimsoll::formats
