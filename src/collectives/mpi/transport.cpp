// See mpi.h; missing.cpp stands in for this file where MPI was not found.
#include <fmt/format.h>

#include "collectives/mpi/group.h"
#include "collectives/mpi/mpi.h"
#include "collectives/mpi/world.h"

namespace plimsoll::collectives::mpi {

namespace {

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Limits& limits) : world_(std::make_shared<World>(limits)) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::string description() const override { return fmt::format("MPI ({})", launched_by().value_or("a single process")); }

  std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) override {
    const int member = position_of(rank(), ranks, size(), name);
    return recorded(std::make_unique<MpiGroup>(std::move(name), std::vector<int>(ranks.begin(), ranks.end()), member, world_));
  }

  void abort(const std::string& reason, base::ErrorKind kind) override { world_->abort(reason, kind); }
  std::optional<Failure> failure_elsewhere() override { return world_->failure_elsewhere(); }

 private:
  std::shared_ptr<World> world_;
};

}  // namespace

std::optional<std::string> why_missing() { return std::nullopt; }

std::unique_ptr<Transport> join(const Limits& limits) { return std::make_unique<MpiTransport>(limits); }

}  // namespace plimsoll::collectives::mpi
