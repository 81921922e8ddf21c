// Parse, run, turn what went wrong into one paragraph and an exit code.
#include <csignal>
#include <cstdio>
#include <exception>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/processor.h"
#include "cli/app.h"
#include "cli/say.h"
#include "io/lost_page.h"
#include "train/ranks.h"

namespace {

constexpr int kBadInput = static_cast<int>(plimsoll::base::ErrorKind::bad_input);
constexpr int kOther = static_cast<int>(plimsoll::base::ErrorKind::other);

int complain(const std::string& message, int exit_code) {
  plimsoll::train::tell_ranks_that_wait(message);
  if (plimsoll::train::speaks_for_all(static_cast<plimsoll::base::ErrorKind>(exit_code)))
    plimsoll::cli::say("plimsoll: {}{}\n", plimsoll::train::own_name(), message);
  return exit_code;
}

// A stream that the caller closed must not become the next file that is opened, to be written over by words.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

}  // namespace

int main(int count, char** arguments) {
  open_standard_streams();
  plimsoll::base::let_waiting_threads_sleep(arguments);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is then an error of the write, which is told
  plimsoll::io::end_on_lost_page();
  try {
    plimsoll::base::processor();  // examined while this is the only thread
    const auto app = plimsoll::cli::make_app();
    try {
      app->parse(count, arguments);
    } catch (const CLI::ParseError& error) {
      const bool is_wrong = error.get_exit_code() != 0;  // or a wish for help
      if (is_wrong) plimsoll::train::tell_ranks_that_wait(error.what());
      if (is_wrong && !plimsoll::train::speaks_for_all(plimsoll::base::ErrorKind::bad_input)) return kBadInput;
      app->exit(error);
      return is_wrong ? kBadInput : 0;
    }
    return std::fflush(stdout) == 0 ? 0 : complain("the output could not be written", kOther);
  } catch (const plimsoll::train::RankError& error) {
    if (error.speaks()) plimsoll::cli::say("plimsoll: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    return complain(plimsoll::train::words_of(error), static_cast<int>(plimsoll::collectives::kind_of(error)));
  }
}
