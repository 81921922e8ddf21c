// Sends and receives that are under way together, and whom each is with.
#pragma once

#include <vector>

#include "collectives/group.h"
#include "collectives/mpi/world.h"

namespace plimsoll::collectives::mpi {

class Flight {
 public:
  Flight(World& world, MPI_Comm comm) : world_(&world), comm_(comm) {}
  // Memory that is in the air stays MPI's: a flight that cannot land keeps the process from using it again, so it is let go of.
  void send(int to, int tag, Input data);
  void receive(int from, int tag, Output data);
  // Returns when all have landed. Members are told as ranks through `members`.
  void land(const std::string& what, std::span<const int> members);
  bool landed();  // whether all have

 private:
  World* world_;
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

}  // namespace plimsoll::collectives::mpi
