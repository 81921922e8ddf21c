#include "formats/token_file.h"

#include <algorithm>
#include <array>

#include "formats/mapped_tokens.h"
#include "formats/megatron_tokens.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

constexpr std::int32_t kGpt2Magic = 20240520;
constexpr std::int32_t kLlama3Magic = 20240801;

struct OtherMagic {
  std::int32_t magic;
  std::string_view what;
};
constexpr std::array<OtherMagic, 5> kOtherMagics{{{20240522, "an evaluation set"},
                                                  {20240326, "a model"},
                                                  {20240327, "a debug state"},
                                                  {20240328, "a tokenizer"},
                                                  {20240527, "an optimizer state"}}};

std::array<std::byte, 16> first_bytes(io::FileSystem& file_system, const io::Path& path) {
  std::array<std::byte, 16> head{};
  io::File(file_system, path, io::OpenMode::read).read_at(0, head);  // what a short file lacks stays zero
  return head;
}

void refuse_other_llmc_files(std::int32_t magic, const io::Path& path) {
  for (const OtherMagic& other : kOtherMagics) {
    if (magic != other.magic) continue;
    base::bad_input("'{}' is a file of llm.c that holds {} (it begins with {}); expected one with tokens (beginning with {} or {})",
                    path.string(), other.what, magic, kGpt2Magic, kLlama3Magic);
  }
}

// A pattern such as "folder/*" finds both halves of a Megatron dataset; it is still one dataset.
bool is_second_half(const std::vector<io::Path>& paths, const io::Path& path) {
  if (path.extension() != ".idx") return false;
  return std::find(paths.begin(), paths.end(), io::Path(path).replace_extension(".bin")) != paths.end();
}

std::unique_ptr<TokenSource> open_llmc(io::FileSystem& file_system, const io::Path& path, TokenFormat format) {
  io::Mapping mapping = file_system.map(path);
  const auto size = static_cast<std::int64_t>(mapping.bytes().size());
  if (size < kLlmcHeaderBytes)
    base::bad_input("'{}' has {} bytes; a token file of llm.c begins with a header of {}", path.string(), size, kLlmcHeaderBytes);
  const bool gpt2 = format == TokenFormat::llmc_gpt2;
  const std::int32_t expected_version = gpt2 ? 1 : 7;
  const std::int32_t version = load<std::int32_t>(mapping.bytes().data() + 4);
  if (version != expected_version) {
    base::bad_input("'{}' is a {} of version {}; expected version {}", path.string(), name_of(format), version, expected_version);
  }
  const IdWidth width = gpt2 ? IdWidth::u16 : IdWidth::u32;
  const std::int64_t count = load<std::int32_t>(mapping.bytes().data() + 8);
  const std::int64_t expected_size = kLlmcHeaderBytes + count * size_of(width);
  if (count < 0 || size != expected_size) {
    base::bad_input("'{}' says it holds {} tokens, which takes {} bytes, but it has {}; the file is cut short or its header is wrong",
                    path.string(), count, count < 0 ? 0 : expected_size, size);
  }
  if (count == 0) base::bad_input("'{}' holds no tokens", path.string());
  return std::make_unique<MappedTokens>(
      std::move(mapping), TokenLayout{.file = path.string(), .width = width, .tokens = count, .runs = {{0, kLlmcHeaderBytes}}});
}

std::unique_ptr<TokenSource> open_headerless(io::FileSystem& file_system, const io::Path& path, const TokenFileOptions& options) {
  if (options.token_bytes != 2 && options.token_bytes != 4) base::bad_input("token_bytes is {}; expected 2 or 4", options.token_bytes);
  io::Mapping mapping = file_system.map(path);
  const auto size = static_cast<std::int64_t>(mapping.bytes().size());
  if (size == 0) base::bad_input("'{}' is empty; expected tokens of {} bytes each", path.string(), options.token_bytes);
  if (size % options.token_bytes != 0) {
    base::bad_input("'{}' has {} bytes, which is no whole number of {}-byte tokens; a headerless token file holds nothing else{}",
                    path.string(), size, options.token_bytes,
                    options.token_bytes == 4 && size % 2 == 0 ? " (token_bytes 2 would fit)" : "");
  }
  const IdWidth width = options.token_bytes == 2 ? IdWidth::u16 : IdWidth::u32;
  auto source = std::make_unique<MappedTokens>(
      std::move(mapping), TokenLayout{.file = path.string(), .width = width, .tokens = size / options.token_bytes, .runs = {{0, 0}}});
  if (options.token_bytes == 2 && !options.certain && looks_like_four_bytes(*source)) {
    base::bad_input(
        "'{}' has no header and looks like ids of 4 bytes: every second half is nearly empty; expected ids of 2 bytes. Set "
        "\"data.token_bytes\" to 4, or to 2 if they are",
        path.string());
  }
  return source;
}

}  // namespace

bool looks_like_four_bytes(const TokenSource& read_as_two) {
  constexpr std::int64_t kFewest = 16, kMost = 1 << 16;
  constexpr std::int32_t kNearlyEmpty = 3;
  const std::int64_t size = read_as_two.size();
  if (size < kFewest || size % 2 != 0) return false;
  std::vector<std::int32_t> halves(static_cast<std::size_t>(std::min(size, kMost)));
  read_as_two.read(0, halves);
  for (std::size_t upper = 1; upper < halves.size(); upper += 2) {
    if (halves[upper] > kNearlyEmpty) return false;
  }
  return std::any_of(halves.begin(), halves.end(), [](std::int32_t half) { return half > kNearlyEmpty; });
}

std::string_view name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::llmc_gpt2: return "llm.c token file (GPT-2, u16)";
    case TokenFormat::llmc_llama3: return "llm.c token file (Llama-3, u32)";
    case TokenFormat::headerless: return "headerless token file";
    case TokenFormat::megatron: return "Megatron indexed dataset";
  }
  return "?";
}

std::optional<TokenFormat> recognise_token_file(io::FileSystem& file_system, const io::Path& path) {
  if (find_megatron(file_system, path)) return TokenFormat::megatron;
  if (path.extension() == ".idx") base::bad_input("'{}' is no Megatron index: it does not begin with MMIDIDX", path.string());
  const auto head = first_bytes(file_system, path);
  const std::int32_t magic = load<std::int32_t>(head.data());
  if (magic == kGpt2Magic) return TokenFormat::llmc_gpt2;
  if (magic == kLlama3Magic) return TokenFormat::llmc_llama3;
  refuse_other_llmc_files(magic, path);
  if (path.extension() != ".bin") return std::nullopt;
  if (const io::Path index = io::Path(path).replace_extension(".idx"); file_system.status(index)) {
    base::bad_input(
        "'{}' stands beside '{}' and is no Megatron index: it does not begin with MMIDIDX; mend it, or move it away if the tokens have "
        "none",
        index.string(), path.string());
  }
  return TokenFormat::headerless;
}

io::Path unfinished_mark(const io::Path& path) {
  constexpr std::size_t kNumber = 7;  // _000000
  std::string name = path.string();
  if (path.extension() == ".bin" || path.extension() == ".idx") name.resize(name.size() - 4);
  const std::string_view end = std::string_view(name).substr(name.size() - std::min(name.size(), kNumber));
  if (end.size() == kNumber && end[0] == '_' && end.find_first_not_of("0123456789", 1) == std::string_view::npos)
    name.resize(name.size() - kNumber);
  return name + ".unfinished";
}

std::unique_ptr<TokenSource> open_token_file(io::FileSystem& file_system, const io::Path& path, const TokenFileOptions& options) {
  const auto format = recognise_token_file(file_system, path);
  if (!format) {
    base::bad_input("'{}' is no token file that Plimsoll knows: no header of llm.c, no Megatron index, and no name ending in .bin",
                    path.string());
  }
  if (const io::Path mark = unfinished_mark(path); file_system.status(mark)) {
    base::bad_input("'{}' is one of several files whose making was cut short, as '{}' says: make them again, with --force", path.string(),
                    mark.string());
  }
  switch (*format) {
    case TokenFormat::llmc_gpt2:
    case TokenFormat::llmc_llama3: return open_llmc(file_system, path, *format);
    case TokenFormat::headerless: return open_headerless(file_system, path, options);
    case TokenFormat::megatron: return open_megatron(file_system, *find_megatron(file_system, path));
  }
  PLIMSOLL_CHECK(false, "token format {}", static_cast<int>(*format));
  return nullptr;
}

namespace {

constexpr int kDeepestFolder = 32;

void add_files_in(io::FileSystem& file_system, const io::Path& folder, int depth, std::vector<io::Path>& files) {
  if (depth > kDeepestFolder) base::bad_input("'{}' lies more than {} folders deep; expected data files", folder.string(), kDeepestFolder);
  for (const io::Entry& entry : file_system.list(folder)) {
    if (entry.name.starts_with('.') || entry.name.ends_with(".unfinished")) continue;  // the mark of token files that are being written
    const io::Path path = folder / entry.name;
    const auto status = file_system.status(path);
    if (!status) base::bad_input("'{}' is a link that leads nowhere; mend or remove it", path.string());
    if (status->kind == io::EntryKind::directory) {
      add_files_in(file_system, path, depth + 1, files);
    } else {
      files.push_back(path);
    }
  }
}

// A folder may hold anything. What was named by itself may too, but then somebody meant it.
void require_data(io::FileSystem& file_system, const io::Path& path, const io::Path& folder) {
  if (recognise_token_file(file_system, path)) return;
  std::array<std::byte, 4096> head{};
  const std::span<const std::byte> read(head.data(), io::File(file_system, path, io::OpenMode::read).read_at(0, head));
  if (std::find(read.begin(), read.end(), std::byte{0}) == read.end()) return;
  base::bad_input(
      "'{}' in the folder '{}' is neither text nor a token file; move it away, or name the files to read by a pattern, such as "
      "'{}/*.txt'",
      path.string(), folder.string(), folder.string());
}

std::vector<io::Path> files_in(io::FileSystem& file_system, const io::Path& folder) {
  std::vector<io::Path> files;
  add_files_in(file_system, folder, 0, files);
  if (files.empty()) base::bad_input("the folder '{}' holds no file; expected text or token files", folder.string());
  std::sort(files.begin(), files.end(), [](const io::Path& a, const io::Path& b) { return a.native() < b.native(); });
  for (const io::Path& file : files) {
    if (!is_second_half(files, file)) require_data(file_system, file, folder);
  }
  return files;
}

}  // namespace

std::vector<io::Path> find_data(io::FileSystem& file_system, const std::string& name) {
  std::vector<io::Path> named{io::Path(name)};
  if (!file_system.status(name)) named = io::expand_glob(file_system, name);
  if (named.empty()) base::bad_input("no file matches '{}'", name);
  std::vector<io::Path> files;
  for (const io::Path& path : named) {
    const auto status = file_system.status(path);
    if (status && status->kind == io::EntryKind::directory) {
      const std::vector<io::Path> inside = files_in(file_system, path);
      files.insert(files.end(), inside.begin(), inside.end());
    } else {
      files.push_back(path);
    }
  }
  std::erase_if(files, [&](const io::Path& path) { return is_second_half(files, path); });
  return files;
}

std::unique_ptr<TokenSource> open_tokens(io::FileSystem& file_system, const std::vector<std::string>& patterns,
                                         const TokenFileOptions& options, const TextOpener& open_text) {
  std::vector<std::unique_ptr<TokenSource>> parts;
  for (const std::string& pattern : patterns) {
    for (const io::Path& path : find_data(file_system, pattern)) {
      parts.push_back(recognise_token_file(file_system, path) ? open_token_file(file_system, path, options) : open_text(file_system, path));
    }
  }
  if (parts.empty()) base::bad_input("no data file was named");
  return concatenate(std::move(parts));
}

}  // namespace plimsoll::formats
