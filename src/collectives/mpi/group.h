// A group of MPI ranks: a communicator for collectives and one for messages.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "collectives/group.h"
#include "collectives/mpi/flight.h"
#include "collectives/mpi/world.h"

namespace plimsoll::collectives::mpi {

class MpiGroup final : public Group {
 public:
  MpiGroup(std::string name, std::vector<int> ranks, int member, std::shared_ptr<World> world);

  Traffic traffic() const override { return traffic_; }

 private:
  void do_all_reduce(const Call& call, Input in, Output out) override;
  void do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) override;
  void do_all_gather(const Call& call, Input in, Output out, Counts counts) override;
  void do_broadcast(const Call& call, Output data) override;
  void do_reduce(const Call& call, Input in, Output out) override;
  void do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) override;
  void do_barrier(const Call& call) override;
  void do_send(const Call& call, Input data) override;
  void do_receive(const Call& call, Output data) override;

  // Members tell each other what they ask for, and compare.
  void meet(const Call& call, Counts counts = {}, Counts wanted = {});
  std::string waiting_in(const Call& call) const;
  void send(Flight& flight, int to, int tag, Input data);
  void receive(Flight& flight, int from, int tag, Output data);
  void land(Flight& flight, const Call& call) { flight.land(waiting_in(call), members()); }
  void reduce_parts(const Call& call, Input in, Counts counts, std::byte* own_part, std::byte* whole);
  Flight flight() { return {*world_, collective_}; }
  std::byte* scratch(std::size_t bytes);
  void forget_sent();

  std::shared_ptr<World> world_;
  MPI_Comm collective_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  Traffic traffic_;
  std::vector<std::byte> scratch_;
  struct Sent {
    std::vector<std::byte> copy;
    Flight flight;
  };
  std::list<Sent> under_way_;
  std::vector<std::vector<std::byte>> spares_;
};

}  // namespace plimsoll::collectives::mpi
