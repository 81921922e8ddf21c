#include "io/lost_page.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace plimsoll::io {

namespace {

// Everything below runs where a signal struck: nothing that allocates or locks.

void put(std::string_view words) {
  while (!words.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    words.remove_prefix(static_cast<std::size_t>(written));
  }
}

// One line after another of the system's list of mappings: "begin-end rights offset device inode name".
class MappingLines {
 public:
  MappingLines() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  MappingLines(const MappingLines&) = delete;
  MappingLines& operator=(const MappingLines&) = delete;
  ~MappingLines() {
    if (file_ >= 0) ::close(file_);
  }

  // What does not fit into a line is left out.
  bool next() {
    size_ = 0;
    for (char letter = 0; get(letter);) {
      if (letter == '\n') return true;
      if (size_ < sizeof(line_)) line_[size_++] = letter;
    }
    return false;
  }
  std::string_view line() const { return {line_, size_}; }

 private:
  bool get(char& letter) {
    if (at_ == filled_) {
      const ssize_t got = file_ < 0 ? 0 : ::read(file_, buffer_, sizeof(buffer_));
      if (got <= 0) return false;
      at_ = 0;
      filled_ = static_cast<std::size_t>(got);
    }
    letter = buffer_[at_++];
    return true;
  }

  int file_;
  char buffer_[512];
  std::size_t at_ = 0, filled_ = 0;
  char line_[1024];
  std::size_t size_ = 0;
};

std::uintptr_t take_hexadecimal(std::string_view& text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::uintptr_t value = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const std::size_t digit = kDigits.find(text[0]);
    if (digit == std::string_view::npos) break;
    value = value * kDigits.size() + digit;
  }
  return value;
}

bool covers(std::string_view line, std::uintptr_t address) {
  const std::uintptr_t begin = take_hexadecimal(line);
  if (line.empty()) return false;
  line.remove_prefix(1);
  return begin <= address && address < take_hexadecimal(line);
}

void name_file_at(std::uintptr_t address) {
  MappingLines lines;
  while (lines.next()) {
    const std::size_t name = lines.line().find('/');
    if (name == std::string_view::npos || !covers(lines.line(), address)) continue;
    put("'");
    put(lines.line().substr(name));
    put("'");
    return;
  }
  put("a file");
}

void on_lost_page(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // not a missing page: whoever sent it wants what it does to others
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  put("plimsoll: ");
  name_file_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
  put(" was cut short while it was read, or its drive failed; expected it to stay as it is\n");
  ::_exit(static_cast<int>(base::ErrorKind::bad_input));
}

}  // namespace

void end_on_lost_page() {
  struct sigaction action{};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace plimsoll::io
