#include "collectives/mpi/world.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "collectives/mpi/alarm.h"
#include "collectives/mpi/vigil.h"

namespace plimsoll::collectives::mpi {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTag = 1;
constexpr std::size_t kLongest = 1000;           // characters of a control message
constexpr std::chrono::milliseconds kLook{20};   // between looks at control messages
constexpr std::chrono::milliseconds kHear{500};  // given to the others to hear of a failure before the launcher ends them
constexpr std::chrono::seconds kStoodStill{1};   // a pause between own looks, after which others' absence proves nothing
constexpr int kPolls = 200;                      // before the processor is offered to somebody else
const std::string kEnded = "+";                  // what a rank says that ended well; one that failed says a digit and why

int world_size_by_launcher() {
  const char* text = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (text == nullptr) text = std::getenv("PMI_SIZE");
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  base::fail(base::ErrorKind::peer_lost, "{}: {}", what, std::string_view(text.data(), static_cast<std::size_t>(length)));
}

World::World(const Limits& limits) : limits_(limits) {
  int provided = 0;
  {
    const Alarm alarm(limits.progress, "this rank waited in vain for MPI to start");
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    base::bad_input("this MPI allows calls from one thread only; Plimsoll needs MPI_THREAD_SERIALIZED or better");
  }
  one_at_a_time_ = provided < MPI_THREAD_MULTIPLE;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (const int expected = world_size_by_launcher(); expected > 1 && size_ == 1) {
    base::bad_input("the launcher started {} ranks but MPI knows of one; use the mpirun of the MPI that plimsoll was built with", expected);
  }
  check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  if (found != 0) largest_tag_ = *static_cast<int*>(value);
  ended_.resize(static_cast<std::size_t>(size_));
  const Alarm alarm(limits.progress, fmt::format("rank {} waited in vain for the others to meet", rank_));
  vigil_ = keep_vigil(control_, limits_);
}

World::~World() {
  if (failed_ || loss_) {
    // MPI cannot be ended in good order now. Leaving without it makes the launcher end the rest, once they have heard why.
    std::this_thread::sleep_for(kHear);
    return;
  }
  const Alarm alarm(limits_.progress, fmt::format("rank {} waited in vain for the others to end", rank_));
  tell_all(kEnded);
  MPI_Waitall(static_cast<int>(saying_.size()), saying_.data(), MPI_STATUSES_IGNORE);
  // The others' farewells must be taken, or MPI waits for them for ever.
  const auto all_ended = [&] { return std::count(ended_.begin(), ended_.end(), true) + 1 >= size_; };
  while (!all_ended() && !loss_) {
    listen();
    if (!loss_) loss_ = loss_by_silence();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  vigil_.reset();
  if (!loss_) MPI_Finalize();
}

void World::tell_all(const std::string& text) {
  said_.push_back(text.substr(0, kLongest));
  const auto guard = lock();
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    saying_.emplace_back();
    MPI_Isend(said_.back().data(), static_cast<int>(said_.back().size()), MPI_CHAR, other, kTag, control_, &saying_.back());
  }
}

// A rank that has heard of another's failure tells nothing, unless it failed by itself: ranks that meet the same error at once must know of
// each other, so that one of them speaks.
void World::abort(const std::string& reason, base::ErrorKind kind) {
  const std::lock_guard news(news_mutex_);
  if (failed_ || (loss_ && kind == base::ErrorKind::peer_lost)) return;
  failed_ = true;
  tell_all(fmt::format("{}{}", static_cast<int>(kind), reason));
}

std::optional<Failure> World::failure_elsewhere() {
  const std::lock_guard news(news_mutex_);
  listen();
  return failure_;
}

void World::listen() {
  for (;;) {
    const auto guard = lock();
    int there = 0;
    MPI_Message message;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, kTag, control_, &there, &message, &status) != MPI_SUCCESS || there == 0) return;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), ' ');
    MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    if (text == kEnded) {
      ended_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
      continue;
    }
    if (!loss_) loss_ = fmt::format("rank {} failed: {}", status.MPI_SOURCE, text.substr(1));
    if (!failure_ || status.MPI_SOURCE < failure_->rank)
      failure_ = Failure{status.MPI_SOURCE, static_cast<base::ErrorKind>(text.front() - '0')};
  }
}

std::optional<std::string> World::lost(const std::vector<int>& waited_for) {
  const std::lock_guard news(news_mutex_);
  listen();
  if (!loss_) loss_ = loss_by_silence();
  if (loss_) return loss_;
  for (const int rank : waited_for) {
    if (ended_[static_cast<std::size_t>(rank)]) return fmt::format("rank {} has ended", rank);
  }
  return std::nullopt;
}

void wait(World& world, const Wait& wait) {
  auto start = Clock::now();
  auto looked = start;
  for (int polls = 0; !wait.done(); ++polls) {
    if (polls < kPolls) continue;
    sched_yield();
    const auto now = Clock::now();
    if (now - looked < kLook) continue;
    if (now - looked > kStoodStill) start = now;
    looked = now;
    const std::vector<int> late = wait.late();
    std::optional<std::string> why = world.lost(late);
    if (!why && std::chrono::duration<double>(now - start).count() > world.limits().progress) {
      why = fmt::format("rank{} {} did not come within the limit of {:g} s", late.size() == 1 ? "" : "s", fmt::join(late, ", "),
                        world.limits().progress);
    }
    if (why) base::fail(base::ErrorKind::peer_lost, "{}: {}", wait.what, *why);
  }
}

}  // namespace plimsoll::collectives::mpi
