// When each call and instruction of a program ran, for traces and for comparing with what was predicted.
#pragma once

#include <cstdint>
#include <optional>
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

// Numbers that are not finite, where a program first met them.
struct NotFinite {
  std::string text;         // "[norm] gave blocks.1.ffn.norm.0 from finite numbers in blocks.1.forward, micro-batch 0"
  bool brought_in = false;  // by what the rank was sent, so that another has met them before
  double when = 0.0;
};

// A program that ran before or behind this one, and nothing beside it: it brings from the disk what this one reads, or takes it back there.
struct Surrounding {
  std::string program;
  bool before = true;
  double seconds = 0.0;
};

struct Timeline {
  std::vector<TimelineEvent> events;
  std::vector<Surrounding> around = {};

  // Asked for by `looks`: every operand is read once more, which takes a multiple of the program's time.
  bool looks = false;
  std::optional<NotFinite> not_finite = {};
};

struct KernelTime {
  std::string kernel;
  std::int64_t runs = 0;
  double seconds = 0.0;
};

// Where the time went, largest first.
std::vector<KernelTime> by_kernel(const Timeline& timeline);

}  // namespace plimsoll::executor
