#include "collectives/mpi/flight.h"

#include <algorithm>

namespace plimsoll::collectives::mpi {

namespace {
constexpr std::size_t kMost = std::size_t{1} << 30;  // MPI counts in int
}

void Flight::send(int to, int tag, Input data) {
  for (; !data.empty(); data = data.subspan(std::min(kMost, data.size()))) {
    const auto guard = world_->lock();
    peers_.push_back(to);
    requests_.emplace_back();
    const int bytes = static_cast<int>(std::min(kMost, data.size()));
    check(MPI_Isend(data.data(), bytes, MPI_BYTE, to, tag, comm_, &requests_.back()), "MPI_Isend");
  }
}

void Flight::receive(int from, int tag, Output data) {
  for (; !data.empty(); data = data.subspan(std::min(kMost, data.size()))) {
    const auto guard = world_->lock();
    peers_.push_back(from);
    requests_.emplace_back();
    const int bytes = static_cast<int>(std::min(kMost, data.size()));
    check(MPI_Irecv(data.data(), bytes, MPI_BYTE, from, tag, comm_, &requests_.back()), "MPI_Irecv");
  }
}

bool Flight::landed() {
  if (requests_.empty()) return true;
  const auto guard = world_->lock();
  int all = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
  return all != 0;
}

void Flight::land(const std::string& what, std::span<const int> members) {
  const auto late = [&] {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const auto guard = world_->lock();
      int done = 0;
      MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      const int rank = members[static_cast<std::size_t>(peers_[i])];
      if (done == 0 && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
    return ranks;
  };
  wait(*world_, {.what = what, .done = [&] { return landed(); }, .late = late});
  requests_.clear();
  peers_.clear();
}

}  // namespace plimsoll::collectives::mpi
