// Which resource bounds a step: how long each of them was busy, and how much of the time in which the device computed nothing each of
// the others was at work.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "executor/core/timeline.h"
#include "plan/plan.h"

namespace plimsoll::executor {

struct ResourceUse {
  plan::StreamKind kind = plan::StreamKind::compute;
  double busy = 0.0;        // seconds
  double waited_for = 0.0;  // of them, seconds in which the device computed nothing
};

struct StepBounds {
  double seconds = 0.0;           // from the program's start to the end of its last call, with the programs around it
  double idle = 0.0;              // of them, the device computed nothing
  std::vector<ResourceUse> uses;  // the device's computing first, then by how long they were waited for

  // What a faster step would need more of.
  plan::StreamKind bounded_by() const;
};

std::string_view resource_name(plan::StreamKind kind);

// Of the calls of a program's streams.
StepBounds bounds_of(const plan::Program& program, const Timeline& timeline);

// "a step of 946.0 ms: device 375.1 ms, host's processor 560.2 ms (558.0 alone), ...; the host's processor bounds it"
std::string to_string(const StepBounds& bounds);

}  // namespace plimsoll::executor
