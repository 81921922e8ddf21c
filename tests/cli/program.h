// A program under test as its user meets it: arguments in, exit code and two streams out, signals in between.
//
// The streams go to files, not pipes: a child that nobody reads can neither block nor be ended by its output, and a
// killed one leaves what it had said.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace plimsoll::tests {

struct Ended {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::int64_t most_resident = 0;  // bytes
  std::string out;
  std::string err;
};

// A started child. It is killed and reaped if nobody waited for it.
class Child {
 public:
  // `folder` is the child's working directory and holds its streams; `environment` adds to ours.
  Child(const std::vector<std::string>& arguments, const std::filesystem::path& folder, const std::vector<std::string>& environment = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  bool running();  // reaps a child that has ended
  Ended wait();

 private:
  Ended ended() const;

  pid_t pid_ = -1;
  int status_ = 0;
  struct rusage used_{};
  bool reaped_ = false;
  std::filesystem::path out_;
  std::filesystem::path err_;
};

std::string read_file(const std::filesystem::path& path);  // empty when there is none
void write_file(const std::filesystem::path& path, std::string_view content);

// Where a program of that name lies in PATH; empty when there is none.
std::filesystem::path find_program(std::string_view name);

}  // namespace plimsoll::tests
