// The two kinds of failure in Plimsoll.
//
// Error: something outside the program is not as it should be (a file, a key, a budget, a peer). It is thrown,
// travels to the command line and becomes one paragraph and an exit code. Its message says what was found, what
// was expected and what to do.
//
// PLIMSOLL_CHECK: an invariant of our own is broken. It stops the process at once with the place and the values;
// nothing catches it, because nothing after it can be trusted.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace plimsoll::base {

// The values are the process's exit codes, which are a promise to scripts.
enum class ErrorKind {
  other = 1,
  bad_input = 2,  // file, key, value: the user can mend it
  not_legal = 3,  // does not fit, or a strategy that no rule allows
  peer_lost = 4,  // a rank or a device went away
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void not_legal(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::not_legal, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void stop_on_broken_invariant(const char* file, int line, const char* condition, const std::string& message);

}  // namespace plimsoll::base

#define PLIMSOLL_CHECK(condition, ...)                                                                      \
  do {                                                                                                      \
    if (!(condition)) [[unlikely]] {                                                                        \
      ::plimsoll::base::stop_on_broken_invariant(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
    }                                                                                                       \
  } while (false)
