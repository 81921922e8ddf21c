#include "cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace plimsoll::tests {

namespace {

std::string_view key_of(std::string_view setting) { return setting.substr(0, setting.find('=')); }

// Ours with the additions, which the program finds first; NO_COLOR is the tests' to set. The programs need not start themselves anew to
// have threads that sleep while they wait.
std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> settings = additions;
  settings.insert(settings.end(), {"OMP_NUM_THREADS=2", "OMP_WAIT_POLICY=passive"});
  const std::size_t ours = settings.size();
  for (char** setting = environ; *setting != nullptr; ++setting) {
    bool replaced = key_of(*setting) == "NO_COLOR";
    for (std::size_t index = 0; index < ours; ++index) replaced = replaced || key_of(settings[index]) == key_of(*setting);
    if (!replaced) settings.emplace_back(*setting);
  }
  return settings;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const std::filesystem::path& folder, const std::vector<std::string>& environment)
    : out_(folder / ".stdout"), err_(folder / ".stderr") {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  std::vector<std::string> words = arguments;
  std::vector<std::string> settings = environment_with(environment);
  const int error = posix_spawnp(&pid_, words.front().c_str(), &actions, nullptr, pointers_to(words).data(), pointers_to(settings).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + words.front() + ": " + std::strerror(error));
}

Child::~Child() {
  if (reaped_) return;
  send(SIGKILL);
  ::wait4(pid_, &status_, 0, &used_);
}

void Child::send(int signal) const {
  if (!reaped_) ::kill(pid_, signal);
}

bool Child::running() {
  if (!reaped_) reaped_ = ::wait4(pid_, &status_, WNOHANG, &used_) == pid_;
  return !reaped_;
}

Ended Child::wait() {
  if (!reaped_) {
    ::wait4(pid_, &status_, 0, &used_);
    reaped_ = true;
  }
  return ended();
}

Ended Child::ended() const {
  Ended result{.out = read_file(out_), .err = read_file(err_)};
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.most_resident = std::int64_t{1024} * used_.ru_maxrss;
  return result;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

std::filesystem::path find_program(std::string_view name) {
  const char* const variable = std::getenv("PATH");
  std::string_view left = variable == nullptr ? "" : variable;
  while (!left.empty()) {
    const std::size_t colon = left.find(':');
    const std::filesystem::path path = std::filesystem::path(left.substr(0, colon)) / name;
    if (::access(path.c_str(), X_OK) == 0) return path;
    left = colon == std::string_view::npos ? "" : left.substr(colon + 1);
  }
  return {};
}

}  // namespace plimsoll::tests
