// What lies beside a choice: others that differ from it in one answer, so that a search can say what each answer is worth.
#pragma once

#include <string>
#include <vector>

#include "planner/space.h"

namespace plimsoll::planner {

// Choices that differ from `choice` in one answer, or in two degrees whose product stays, with the name of what differs.
struct Neighbour {
  std::string what;
  Choice choice;
};
std::vector<Neighbour> neighbours(const Problem& problem, const Space& space, const Choice& choice);

}  // namespace plimsoll::planner
