#include "formats/token_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr std::int64_t kLargestU16Vocab = 65536;
constexpr std::int64_t kMostLlmcTokens = std::numeric_limits<std::int32_t>::max();

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

io::Path temporary(io::Path path) { return path += ".tmp"; }

// A file that is written from front to back.
class Output {
 public:
  Output(io::FileSystem& file_system, const io::Path& path) : file_(create(file_system, path)) {}

  void append(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBlock) flush();
  }
  void flush() {
    if (buffer_.empty()) return;
    file_.write_at(offset_, io::as_bytes(buffer_));
    offset_ += std::ssize(buffer_);
    buffer_.clear();
  }
  void overwrite(std::string_view bytes) { file_.write_at(0, io::as_bytes(bytes)); }
  void close() {
    flush();
    file_.sync();
    file_.close();
  }

 private:
  static io::File create(io::FileSystem& file_system, const io::Path& path) {
    if (file_system.status(path)) file_system.remove(path);  // left by a run that was killed
    return io::File(file_system, path, io::OpenMode::create);
  }

  io::File file_;
  std::string buffer_;
  std::int64_t offset_ = 0;
};

std::string llmc_header(std::int64_t width, std::int64_t tokens) {
  std::string header;
  put(header, static_cast<std::int32_t>(width == 2 ? 20240520 : 20240801));
  put(header, static_cast<std::int32_t>(width == 2 ? 1 : 7));
  put(header, static_cast<std::int32_t>(tokens));
  header.resize(kLlmcHeaderBytes);
  return header;
}

}  // namespace

struct TokenWriter::Shard {
  Shard(io::FileSystem& file_system, io::Path ids_path) : path(std::move(ids_path)), ids(std::in_place, file_system, temporary(path)) {}

  io::Path path;
  std::optional<Output> ids;
  std::int64_t tokens = 0;
  std::int64_t document_begin = 0;
  std::vector<std::int32_t> lengths;  // of documents, for Megatron's index
  std::vector<io::Path> finished;     // names that the temporaries are to get
};

TokenWriter::TokenWriter(io::FileSystem& file_system, TokenWriterOptions options)
    : file_system_(file_system), options_(std::move(options)) {
  PLIMSOLL_CHECK(options_.vocab > 0, "a vocabulary of {}", options_.vocab);
  if (options_.out.extension() == ".bin") options_.out.replace_extension();
  if (!options_.out.has_filename()) base::bad_input("found the output \"{}\", expected a name such as shards/train", options_.out.string());
  mark_ = unfinished_mark(shard_name(0) + ".bin");
  width_ = options_.vocab <= kLargestU16Vocab ? 2 : 4;
  if (options_.format == ShardFormat::llmc && options_.shard_tokens > kMostLlmcTokens) {
    base::bad_input("a shard of {} tokens does not fit llm.c's format; at most {} do", options_.shard_tokens, kMostLlmcTokens);
  }
  begin_shard();
}

TokenWriter::~TokenWriter() {
  if (!finished_) remove_all();
}

std::string TokenWriter::shard_name(std::size_t index) const {
  return options_.shard_tokens == 0 ? options_.out.string() : fmt::format("{}_{:06d}", options_.out.string(), index);
}

io::Path TokenWriter::folder() const { return options_.out.has_parent_path() ? options_.out.parent_path() : io::Path("."); }

TokenWriter::Shard& TokenWriter::current() { return *shards_.back(); }

void TokenWriter::begin_shard() {
  const std::string name = shard_name(shards_.size());
  for (const char* ending : {".bin", ".idx"}) {
    if (!options_.overwrite && file_system_.status(name + ending)) {
      base::bad_input("'{}{}' exists; choose another name, or allow it to be replaced (--force)", name, ending);
    }
  }
  const io::Path folder = options_.out.parent_path();
  if (shards_.empty() && !folder.empty()) io::make_directories(file_system_, folder);
  shards_.push_back(std::make_unique<Shard>(file_system_, name + ".bin"));
  if (options_.format == ShardFormat::llmc) current().ids->append(std::string(kLlmcHeaderBytes, '\0'));
}

void TokenWriter::write(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    Shard* shard = &current();
    const std::int64_t room = options_.shard_tokens == 0 ? std::ssize(ids) : options_.shard_tokens - shard->tokens;
    // A document that is at its beginning and fits into a shard of its own is not torn.
    const bool begins = shard->tokens == shard->document_begin && shard->tokens > 0;
    const bool whole_elsewhere = begins && std::ssize(ids) > room && std::ssize(ids) <= options_.shard_tokens;
    if (options_.shard_tokens > 0 && (room <= 0 || whole_elsewhere)) {
      close_shard();
      begin_shard();
      continue;
    }
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(room, std::ssize(ids)));
    if (options_.format == ShardFormat::llmc && shard->tokens + static_cast<std::int64_t>(count) > kMostLlmcTokens) {
      base::bad_input("more than {} tokens do not fit one file of llm.c's format; write shards (--shard-tokens)", kMostLlmcTokens);
    }
    std::string bytes;
    bytes.reserve(count * static_cast<std::size_t>(width_));
    for (const std::int32_t id : ids.first(count)) {
      PLIMSOLL_CHECK(id >= 0 && id < options_.vocab, "id {} of a vocabulary of {}", id, options_.vocab);
      if (width_ == 2) {
        put(bytes, static_cast<std::uint16_t>(id));
      } else {
        put(bytes, id);
      }
    }
    shard->ids->append(bytes);
    shard->tokens += static_cast<std::int64_t>(count);
    tokens_ += static_cast<std::int64_t>(count);
    ids = ids.subspan(count);
  }
}

void TokenWriter::end_document() {
  Shard& shard = current();
  const std::int64_t length = shard.tokens - shard.document_begin;
  if (length > std::numeric_limits<std::int32_t>::max()) base::bad_input("a document of {} tokens is too long for an index", length);
  if (length > 0 && options_.format == ShardFormat::megatron) shard.lengths.push_back(static_cast<std::int32_t>(length));
  shard.document_begin = shard.tokens;
  ++documents_;
}

void TokenWriter::close_shard() {
  Shard& shard = current();
  const std::int64_t open = shard.tokens - shard.document_begin;  // what a torn document left here
  if (open > 0 && options_.format == ShardFormat::megatron) shard.lengths.push_back(static_cast<std::int32_t>(open));
  shard.ids->flush();
  if (options_.format == ShardFormat::llmc) shard.ids->overwrite(llmc_header(width_, shard.tokens));
  shard.ids->close();
  shard.ids.reset();
  shard.finished.push_back(shard.path);
  if (options_.format != ShardFormat::megatron) return;
  const io::Path index_path = io::Path(shard.path).replace_extension(".idx");
  Output index(file_system_, temporary(index_path));
  std::string bytes("MMIDIDX\0\0", 9);
  put(bytes, std::uint64_t{1});
  put(bytes, static_cast<std::uint8_t>(width_ == 2 ? 8 : 4));
  put(bytes, static_cast<std::uint64_t>(shard.lengths.size()));
  put(bytes, static_cast<std::uint64_t>(shard.lengths.size() + 1));
  index.append(bytes);
  const auto append = [&](auto value) { index.append({reinterpret_cast<const char*>(&value), sizeof value}); };
  for (const std::int32_t length : shard.lengths) append(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : shard.lengths) {
    append(offset);
    offset += length * width_;
  }
  for (std::int64_t document = 0; document <= std::ssize(shard.lengths); ++document) append(document);
  index.close();
  shard.finished.push_back(index_path);
}

std::vector<WrittenShard> TokenWriter::finish() {
  if (tokens_ == 0) base::bad_input("there is no text to make tokens of");
  if (current().ids) close_shard();
  give_names();
  finished_ = true;
  std::vector<WrittenShard> written;
  for (const auto& shard : shards_) written.push_back({shard->path, shard->tokens});
  return written;
}

void TokenWriter::give_names() {
  if (!file_system_.status(mark_)) io::File(file_system_, mark_, io::OpenMode::create).close();
  file_system_.sync_directory(folder());
  remove_stale();
  for (const auto& shard : shards_) {
    for (const io::Path& path : shard->finished) {
      replacing_ = replacing_ || (options_.overwrite && file_system_.status(path));
      file_system_.rename(temporary(path), path);
      named_.push_back(path);
    }
  }
  file_system_.sync_directory(folder());
  file_system_.remove(mark_);
  file_system_.sync_directory(folder());
}

// Of what is to be replaced: an index would not fit its new tokens, and shards beyond the last would be read with the others. A run
// that was killed may have left gaps, so the folder is looked through.
void TokenWriter::remove_stale() {
  if (!options_.overwrite) return;
  std::set<io::Path> own;
  for (const auto& shard : shards_) own.insert(shard->path);
  for (const io::Entry& entry : file_system_.list(folder())) {
    const io::Path path = options_.out.parent_path() / entry.name;
    const bool shard = path.extension() == ".bin" || path.extension() == ".idx";
    const bool ours = options_.shard_tokens == 0 ? io::Path(path).replace_extension() == shard_name(0) : unfinished_mark(path) == mark_;
    if (!shard || !ours || own.contains(path)) continue;
    replacing_ = true;
    file_system_.remove(path);
  }
}

void TokenWriter::remove_all() noexcept {
  std::vector<io::Path> paths = named_;
  for (const auto& shard : shards_) {
    shard->ids.reset();
    for (const char* ending : {".bin", ".idx"}) paths.push_back(temporary(io::Path(shard->path).replace_extension(ending)));
  }
  if (!replacing_) paths.push_back(mark_);  // last: until then it speaks of the others
  for (const io::Path& path : paths) {
    try {
      if (file_system_.status(path)) file_system_.remove(path);
    } catch (const base::Error&) {  // what cannot be removed is not worth more than the error that led here
    }
  }
}

}  // namespace plimsoll::formats
