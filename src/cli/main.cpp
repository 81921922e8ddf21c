// Parse, run, turn what went wrong into one paragraph and an exit code.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/app.h"
#include "cli/ranks.h"

namespace {

constexpr int kBadInput = static_cast<int>(plimsoll::base::ErrorKind::bad_input);
constexpr int kOther = static_cast<int>(plimsoll::base::ErrorKind::other);

int complain(std::string_view message, int exit_code) {
  if (plimsoll::cli::speaks_for_all(static_cast<plimsoll::base::ErrorKind>(exit_code))) fmt::print(stderr, "plimsoll: {}\n", message);
  return exit_code;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is then an error of the write, which is told
  try {
    const auto app = plimsoll::cli::make_app();
    try {
      app->parse(count, arguments);
    } catch (const CLI::ParseError& error) {
      const int code = app->exit(error);
      return code == 0 ? 0 : kBadInput;
    }
    return std::fflush(stdout) == 0 ? 0 : complain("the output could not be written", kOther);
  } catch (const plimsoll::base::Error& error) {
    return complain(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return complain("the system refused memory beside the arenas; close other programs or use a smaller batch", kOther);
  } catch (const std::exception& error) {
    return complain(error.what(), kOther);
  }
}
