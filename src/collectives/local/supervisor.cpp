// The supervisor's side of processes.h: starting, watching, reaping.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "collectives/local/process_environment.h"
#include "collectives/local/processes.h"
#include "collectives/local/shared_memory.h"

namespace plimsoll::collectives::local {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTermToKill = 1.0;   // seconds between the polite and the other signal
constexpr double kToSayInWhat = 0.5;  // seconds

// Blocks the signals that the supervisor waits for; children start with the old mask.
class SignalMask {
 public:
  SignalMask() {
    sigemptyset(&wanted_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&wanted_, signal);
    pthread_sigmask(SIG_BLOCK, &wanted_, &old_);
  }
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;

  const sigset_t& old() const { return old_; }
  // The next of them, or 0 after `limit`.
  int wait(std::chrono::milliseconds limit) const {
    const timespec time{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(limit).count()};
    const int signal = sigtimedwait(&wanted_, nullptr, &time);
    return signal < 0 ? 0 : signal;
  }

 private:
  sigset_t wanted_{};
  sigset_t old_{};
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Later settings win: exec passes on both, and getenv() finds the first.
std::vector<std::string> environment_for(const SuperviseOptions& options, int rank, int file) {
  std::vector<std::string> result{fmt::format("{}={}", kRankVariable, rank), fmt::format("{}={}", kMemoryVariable, file)};
  result.insert(result.end(), options.environment.begin(), options.environment.end());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::none_of(result.begin(), result.end(), [&](const std::string& set) { return set.starts_with(name); }))
      result.emplace_back(text);
  }
  return result;
}

struct Child {
  pid_t process = -1;
  bool running = false;
};

class Supervisor {
 public:
  explicit Supervisor(const SuperviseOptions& options) : options_(options), memory_(SharedMemory::create(options.ranks, options.limits)) {
    for (int rank = 0; rank < options.ranks; ++rank) start(rank);
  }

  ~Supervisor() {
    signal_all(SIGKILL);
    for (Child& child : children_) {
      if (child.running) waitpid(child.process, nullptr, 0);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int watch() {
    while (any_running()) {
      const int signal = mask_.wait(std::chrono::milliseconds(20));
      if (signal == SIGINT || signal == SIGTERM) {
        passed_on_ = signal;
        signal_all(signal);
      }
      reap();
      find_silent();
      if (const auto loss = memory_.loss()) end_the_rest(*loss);
    }
    if (const auto loss = memory_.loss()) tell(*loss);
    return result_;
  }

 private:
  void start(int rank) {
    std::vector<std::string> arguments = options_.command;
    std::vector<std::string> environment = environment_for(options_, rank, memory_.file());
    const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
    const pid_t parent = getpid();
    // Until exec only what is safe in a child of a process with threads.
    const pid_t process = fork();
    if (process == 0) {
      setpgid(0, 0);  // a key press reaches the supervisor alone, which passes it on once
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(4);
      fcntl(memory_.file(), F_SETFD, 0);
      pthread_sigmask(SIG_SETMASK, &mask_.old(), nullptr);
      execvpe(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    if (process < 0) base::fail(base::ErrorKind::other, "a process for rank {} cannot be started: {}", rank, std::strerror(errno));
    children_.push_back({.process = process, .running = true});
    if (options_.started) options_.started(rank, process);
  }

  bool any_running() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  }

  void signal_all(int signal) const {
    for (const Child& child : children_) {
      if (child.running) kill(child.process, signal);
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      int status = 0;
      if (!child.running || waitpid(child.process, &status, WNOHANG) != child.process) continue;
      child.running = false;
      ended(static_cast<int>(rank), status);
      memory_.control().rank[rank].state.store(RankState::ended);  // after the reason: others look at both
    }
  }

  void ended(int rank, int status) {
    const bool killed = WIFSIGNALED(status);
    // A rank that our own signal ended, before it was ready to take it, is no loss: as a shell would have it of one process.
    const bool as_told = killed && WTERMSIG(status) == passed_on_;
    const int code = as_told ? 128 + passed_on_ : killed ? static_cast<int>(base::ErrorKind::peer_lost) : WEXITSTATUS(status);
    if (code == 0) return;
    // A rank that failed by itself has said why before it ended; that stays.
    if (killed) {
      memory_.report_loss(rank, fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
    } else if (code == 127) {
      memory_.report_loss(rank, fmt::format("could not be started: {} cannot be run", options_.command.front()));
    } else {
      memory_.report_loss(rank, fmt::format("ended with exit code {}", code));
    }
    const auto loss = memory_.loss();
    if (result_ == 0 || (loss && loss->rank == rank && !result_is_final_)) {
      result_ = code;
      result_is_final_ = loss && loss->rank == rank;
    }
  }

  void find_silent() {
    const std::int64_t now = steady_nanoseconds();
    if (now - looked_ > 1'000'000'000) since_ = now;  // we stood still ourselves
    looked_ = now;
    const int silent = silent_rank(memory_.control(), since_);
    if (silent < 0) return;
    memory_.report_loss(silent, silence_text(memory_.control(), silent));
    result_ = static_cast<int>(base::ErrorKind::peer_lost);
    result_is_final_ = true;
  }

  void tell(const SharedMemory::Loss& loss) {
    if (told_) return;
    told_ = true;
    const auto wait = loss.kind == base::ErrorKind::peer_lost ? memory_.wait() : std::nullopt;
    if (options_.say) options_.say(fmt::format("rank {} {}{}", loss.rank, loss.reason, wait ? "; " + *wait : ""), loss.kind);
  }

  void end_the_rest(const SharedMemory::Loss& loss) {
    const auto now = Clock::now();
    if (!lost_at_) lost_at_ = now;
    const double passed = std::chrono::duration<double>(now - *lost_at_).count();
    // Who waits for a lost rank says in what, a moment later.
    if (loss.kind != base::ErrorKind::peer_lost || memory_.wait() || passed > kToSayInWhat) tell(loss);
    if (passed > options_.grace && !asked_) {
      asked_ = true;
      signal_all(SIGTERM);
    }
    if (passed > options_.grace + kTermToKill) signal_all(SIGKILL);
  }

  const SuperviseOptions& options_;
  SignalMask mask_;
  SharedMemory memory_;
  std::vector<Child> children_;
  int passed_on_ = 0;  // the signal that this process was given, if any
  int result_ = 0;
  bool result_is_final_ = false;
  std::int64_t since_ = steady_nanoseconds();
  std::int64_t looked_ = since_;
  std::optional<Clock::time_point> lost_at_;
  bool asked_ = false;
  bool told_ = false;
};

}  // namespace

std::string silence_text(const Control& control, int rank) {
  return fmt::format("gave no sign of life for {:g} s (process {}): it was stopped, or its machine stands still", control.limits.heartbeat,
                     control.rank[static_cast<std::size_t>(rank)].process.load());
}

int supervise(const SuperviseOptions& options) {
  if (options.ranks < 1 || options.ranks > kMostProcesses) {
    base::bad_input("{} ranks as processes; expected 1 to {}", options.ranks, kMostProcesses);
  }
  PLIMSOLL_CHECK(!options.command.empty(), "no command to start");
  return Supervisor(options).watch();
}

}  // namespace plimsoll::collectives::local
