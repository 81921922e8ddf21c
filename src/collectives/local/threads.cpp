#include "collectives/local/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "collectives/local/thread_group.h"

namespace plimsoll::collectives::local {

struct ThreadWorld::State final : Watch {
  explicit State(int ranks_in, const Limits& limits_in) : ranks(ranks_in), limits(limits_in), left(static_cast<std::size_t>(ranks_in)) {}

  std::optional<std::string> lost(std::span<const int> waited_for) override {
    if (first_lost.load(std::memory_order_acquire) >= 0) return fmt::format("rank {} failed: {}", first_lost.load(), reason);
    for (const int rank : waited_for) {
      if (left[static_cast<std::size_t>(rank)].load(std::memory_order_acquire)) return fmt::format("rank {} has ended", rank);
    }
    return std::nullopt;
  }

  void abort(int rank, const std::string& why, base::ErrorKind what) {
    const std::lock_guard lock(mutex);
    if (first_lost.load(std::memory_order_relaxed) >= 0) return;
    reason = why;
    kind = what;
    first_lost.store(rank, std::memory_order_release);
  }

  // Groups are told apart by name, ranks and how often a rank has made one like it.
  std::shared_ptr<ThreadMeeting> join(const std::string& name, const std::vector<int>& group, int times) {
    const std::lock_guard lock(mutex);
    Joining& joining = joining_groups[{name, group, times}];
    if (!joining.meeting) joining.meeting = std::make_shared<ThreadMeeting>(static_cast<int>(group.size()));
    std::shared_ptr<ThreadMeeting> meeting = joining.meeting;
    if (++joining.joined == group.size()) joining_groups.erase({name, group, times});
    return meeting;
  }

  struct Joining {
    std::shared_ptr<ThreadMeeting> meeting;
    std::size_t joined = 0;
  };

  int ranks;
  Limits limits;
  std::mutex mutex;
  std::map<std::tuple<std::string, std::vector<int>, int>, Joining> joining_groups;
  std::atomic<int> first_lost{-1};
  std::string reason;  // written once, before first_lost; so is its kind
  base::ErrorKind kind = base::ErrorKind::other;
  std::vector<std::atomic<bool>> left;
};

namespace {

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadWorld::State> state, int rank) : state_(std::move(state)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_->ranks; }
  std::string description() const override { return "local threads"; }

  std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) override {
    std::vector<int> members(ranks.begin(), ranks.end());
    const int member = position_of(rank_, members, size(), name);
    std::shared_ptr<ThreadMeeting> meeting = state_->join(name, members, made_[{name, members}]++);
    return recorded(std::make_unique<ThreadGroup>(std::move(name), std::move(members), member, std::move(meeting), state_, state_->limits));
  }

  void abort(const std::string& reason, base::ErrorKind kind) override { state_->abort(rank_, reason, kind); }

  std::optional<Failure> failure_elsewhere() override {
    const int first = state_->first_lost.load(std::memory_order_acquire);
    if (first < 0 || first == rank_) return std::nullopt;
    return Failure{first, state_->kind};
  }

 private:
  std::shared_ptr<ThreadWorld::State> state_;
  int rank_;
  std::map<std::pair<std::string, std::vector<int>>, int> made_;
};

}  // namespace

ThreadWorld::ThreadWorld(int ranks, const Limits& limits) : state_(std::make_shared<State>(ranks, limits)) {
  PLIMSOLL_CHECK(ranks > 0, "a world of {} ranks", ranks);
  for (int rank = 0; rank < ranks; ++rank) transports_.push_back(std::make_unique<ThreadTransport>(state_, rank));
}

ThreadWorld::~ThreadWorld() = default;

Transport& ThreadWorld::transport(int rank) { return *transports_.at(static_cast<std::size_t>(rank)); }

void ThreadWorld::leave(int rank) { state_->left[static_cast<std::size_t>(rank)].store(true, std::memory_order_release); }

int ThreadWorld::first_lost() const { return state_->first_lost.load(std::memory_order_acquire); }

void run_threads(int ranks, const std::function<void(Transport&)>& body, const Limits& limits) {
  ThreadWorld world(ranks, limits);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  const auto run = [&](int rank) {
    try {
      body(world.transport(rank));
      world.leave(rank);
    } catch (const std::exception& error) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      world.transport(rank).abort(error.what(), kind_of(error));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
    run(0);
  }
  if (const int first = world.first_lost(); first >= 0) std::rethrow_exception(failures[static_cast<std::size_t>(first)]);
}

}  // namespace plimsoll::collectives::local
