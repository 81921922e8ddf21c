// Writers of token files for tests: plain bytes, so that they can also be made wrong on purpose.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/token_source.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "support/refusal.h"

namespace plimsoll::formats {

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
std::string packed(const std::vector<std::int32_t>& ids) {
  std::string out;
  for (const std::int32_t id : ids) put(out, static_cast<T>(id));
  return out;
}

inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::string out;
  put(out, magic);
  put(out, version);
  put(out, count);
  out.resize(1024);
  return out;
}

inline std::vector<std::int32_t> random_ids(std::mt19937& random, std::size_t count, std::int32_t vocab) {
  std::vector<std::int32_t> ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab));
  return ids;
}

inline std::vector<std::int32_t> all_of(const TokenSource& source) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
  source.read(0, ids);
  return ids;
}

// Random windows must equal the same stretch of the whole.
inline bool reads_like(const TokenSource& source, const std::vector<std::int32_t>& ids, std::mt19937& random) {
  if (all_of(source) != ids) return false;
  for (int trial = 0; trial < 50; ++trial) {
    const std::size_t begin = random() % (ids.size() + 1);
    const std::size_t count = random() % (ids.size() - begin + 1);
    std::vector<std::int32_t> window(count, -7);
    source.read(static_cast<std::int64_t>(begin), window);
    if (!std::equal(window.begin(), window.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin))) return false;
  }
  return true;
}

class TokenFolder {
 public:
  io::Path put_file(const std::string& name, std::string_view bytes) {
    const io::Path path = folder_.path() / name;
    io::remove_tree(disk, path);
    io::File(disk, path, io::OpenMode::create).write_at(0, io::as_bytes(bytes));
    return path;
  }
  io::Path path() const { return folder_.path(); }

  io::PosixFileSystem disk;

 private:
  tests::MemoryFolder folder_;
};

using tests::refusal;

}  // namespace plimsoll::formats
