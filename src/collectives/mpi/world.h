// This process's part in MPI: initialising, the lock where MPI wants one call at a time, waiting with an eye on the others, and the
// control messages by which a rank says that it failed or ended.
#pragma once

#include <mpi.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/rendezvous.h"
#include "collectives/transport.h"

namespace plimsoll::collectives::mpi {

// Throws with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

class World {
 public:
  explicit World(const Limits& limits);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Limits& limits() const { return limits_; }
  int largest_tag() const { return largest_tag_; }

  // Held around each MPI call, for as long as that takes. Free where MPI was built for threads.
  std::unique_lock<std::mutex> lock() { return one_at_a_time_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>(); }

  // Tells all others that this rank failed.
  void abort(const std::string& reason, base::ErrorKind kind);
  // A clause that names a lost rank. `waited_for`: ranks whose good end is a loss too.
  std::optional<std::string> lost(const std::vector<int>& waited_for);
  std::optional<Failure> failure_elsewhere();
  // A rank that gives no sign of life any more; may be asked while a thread is inside MPI.
  std::optional<std::string> loss_by_silence() const { return vigil_ ? vigil_->loss() : std::nullopt; }

 private:
  void tell_all(const std::string& text);
  void listen();  // takes control messages that have come

  Limits limits_;
  int rank_ = 0;
  int size_ = 1;
  int largest_tag_ = 32767;
  bool one_at_a_time_ = false;
  std::mutex mutex_;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::unique_ptr<Rendezvous> vigil_;  // null where there is none

  std::mutex news_mutex_;
  bool failed_ = false;  // this rank
  std::optional<std::string> loss_;
  std::optional<Failure> failure_;  // of the lowest rank that told of one
  std::vector<bool> ended_;
  std::list<std::string> said_;  // kept, in place, while MPI sends them
  std::vector<MPI_Request> saying_;
};

// Polls until `done` is true; `late` gives the ranks that are still missing. Throws peer_lost.
struct Wait {
  std::string what;  // "rank 1 waited in vain in all_reduce #3 ... of group 'data'"
  std::function<bool()> done;
  std::function<std::vector<int>()> late;
};
void wait(World& world, const Wait& wait);

}  // namespace plimsoll::collectives::mpi
