#include "train/machine/process_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>

#include "io/files.h"
#include "io/posix_file_system.h"

namespace plimsoll::train {

namespace {

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

// "Rss:                 12 kB", or nothing where the line is another.
std::optional<std::int64_t> kilobytes(std::string_view line, std::string_view key) {
  if (take_word(line) != key) return std::nullopt;
  const std::string_view number = take_word(line);
  std::int64_t value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  return value;
}

// All mappings of a file, or of none.
struct Mapped {
  bool executed = false;
  std::int64_t resident = 0;
  std::int64_t own = 0;  // pages that were written to, which no longer are the file's
};

}  // namespace

base::Bytes memory_of_mappings(std::string_view smaps) {
  std::map<std::string, Mapped, std::less<>> files;
  Mapped* file = nullptr;
  while (!smaps.empty()) {
    const std::string_view line = take_line(smaps);
    std::string_view words = line;
    const std::string_view first = take_word(words);
    if (first.find('-') != std::string_view::npos) {  // "55d0-55d4 r-xp 00002000 08:01 1234   /usr/bin/plimsoll"
      const std::string_view rights = take_word(words);
      for (int skipped = 0; skipped < 3; ++skipped) take_word(words);
      file = &files[std::string(take_word(words))];
      file->executed = file->executed || rights.find('x') != std::string_view::npos;
    } else if (file != nullptr) {
      if (const auto resident = kilobytes(line, "Rss:")) file->resident += *resident;
      if (const auto own = kilobytes(line, "Anonymous:")) file->own += *own;
    }
  }
  std::int64_t all = 0;
  for (const auto& [name, mapped] : files) {
    const bool is_data = name.starts_with('/') && !mapped.executed && !name.starts_with("/dev/") && !name.starts_with("/memfd:");
    all += is_data ? mapped.own : mapped.resident;
  }
  return base::Bytes{all * 1024};
}

base::Bytes process_memory() {
  malloc_trim(0);
  io::PosixFileSystem files;
  const io::Path path = "/proc/self/smaps";
  if (files.status(path)) return memory_of_mappings(io::read_text(files, path));
  // Includes what whoever started this process had: for systems that do not say more.
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return base::Bytes{static_cast<std::int64_t>(usage.ru_maxrss) * 1024};
}

}  // namespace plimsoll::train
