// When each call and instruction of a program ran, for traces and for comparing with what was predicted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::executor {

struct TimelineEvent {
  std::string name;
  std::string kernel;  // empty for a call
  std::int32_t stream = 0;
  std::int32_t micro_batch = 0;
  double begin = 0.0;  // seconds since the program started
  double end = 0.0;
  double processor = 0.0;  // seconds that its thread computed, where that is measured
};

struct Timeline {
  std::vector<TimelineEvent> events;
};

struct KernelTime {
  std::string kernel;
  std::int64_t runs = 0;
  double seconds = 0.0;
};

// Where the time went, largest first.
std::vector<KernelTime> by_kernel(const Timeline& timeline);

}  // namespace plimsoll::executor
