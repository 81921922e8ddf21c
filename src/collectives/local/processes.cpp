#include "collectives/local/processes.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "collectives/local/process_environment.h"
#include "collectives/local/process_group.h"
#include "collectives/local/shared_memory.h"

namespace plimsoll::collectives::local {

namespace {

constexpr std::chrono::milliseconds kBeat{200};
constexpr std::int64_t kStoodStill = 1'000'000'000;  // a pause between own signs, in ns, after which others' silence proves nothing

int number_from(const char* name) {
  const char* text = std::getenv(name);
  const std::string_view digits = text == nullptr ? "" : text;
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    base::bad_input("{} is \"{}\", expected a number; it is set by --processes and by nobody else", name, digits);
  }
  return number;
}

std::uint64_t hashed(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash ^ (hash >> 29);
}

class ProcessWatch final : public Watch {
 public:
  explicit ProcessWatch(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  std::optional<std::string> lost(std::span<const int> ranks) override {
    if (const auto loss = memory_->loss()) return fmt::format("rank {} {}", loss->rank, loss->reason);
    for (const int rank : ranks) {
      if (memory_->control().rank[static_cast<std::size_t>(rank)].state.load() == RankState::ended)
        return fmt::format("rank {} has ended", rank);
    }
    return std::nullopt;
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
};

class ProcessTransport final : public Transport {
 public:
  ProcessTransport(std::shared_ptr<SharedMemory> memory, int rank)
      : memory_(std::move(memory)), watch_(std::make_shared<ProcessWatch>(memory_)), rank_(rank) {
    Control::Rank& own = memory_->control().rank[static_cast<std::size_t>(rank_)];
    own.process.store(getpid());
    own.beat.store(steady_nanoseconds());
    own.state.store(RankState::running);
    heart_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  }

  ~ProcessTransport() override {
    heart_.request_stop();
    heart_.join();
    memory_->control().rank[static_cast<std::size_t>(rank_)].state.store(RankState::ended);
  }

  int rank() const override { return rank_; }
  int size() const override { return memory_->control().ranks; }
  std::string description() const override { return "local processes"; }

  std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) override {
    std::string key = name;
    for (const int rank : ranks) key += fmt::format(",{}", rank);
    key += fmt::format("#{}", made_[key]++);
    const ProcessGroup::Options options{.ranks = {ranks.begin(), ranks.end()},
                                        .member = position_of(rank_, ranks, size(), name),
                                        .key = hashed(key),
                                        .limits = memory_->control().limits,
                                        .spins = size() <= base::usable_cores()};
    return recorded(std::make_unique<ProcessGroup>(std::move(name), options, memory_, watch_));
  }

  void abort(const std::string& reason, base::ErrorKind kind) override {
    // "rank 1 waited in vain in all_reduce #3 ... of group 'data'", without whom it waited for
    if (kind == base::ErrorKind::peer_lost) memory_->report_wait(reason.substr(0, reason.find(": ")));
    memory_->report_loss(rank_, fmt::format("failed: {}", reason), kind);
  }

  std::optional<Failure> failure_elsewhere() override {
    const auto loss = memory_->loss();
    if (!loss || loss->rank == rank_) return std::nullopt;
    return Failure{loss->rank, loss->kind};
  }

 private:
  void beat(const std::stop_token& stop) {
    Control& control = memory_->control();
    Control::Rank& own = control.rank[static_cast<std::size_t>(rank_)];
    std::int64_t since = steady_nanoseconds();
    while (!stop.stop_requested()) {
      const std::int64_t now = steady_nanoseconds();
      if (now - own.beat.load() > kStoodStill) since = now;
      own.beat.store(now);
      if (const int silent = silent_rank(control, since); silent >= 0) memory_->report_loss(silent, silence_text(control, silent));
      // Short naps, so that a transport goes away promptly.
      for (auto slept = std::chrono::milliseconds(0); slept < kBeat && !stop.stop_requested(); slept += kLook) {
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<ProcessWatch> watch_;
  int rank_;
  std::map<std::string, int> made_;
  std::jthread heart_;
};

}  // namespace

bool is_supervised() { return std::getenv(kRankVariable) != nullptr; }

std::unique_ptr<Transport> join_processes() {
  const int rank = number_from(kRankVariable);
  auto memory = std::make_shared<SharedMemory>(SharedMemory::adopt(number_from(kMemoryVariable)));
  if (rank >= memory->control().ranks) {
    base::bad_input("{} is {}, but there are {} ranks", kRankVariable, rank, memory->control().ranks);
  }
  return std::make_unique<ProcessTransport>(std::move(memory), rank);
}

}  // namespace plimsoll::collectives::local
