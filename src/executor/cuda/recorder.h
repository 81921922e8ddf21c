// Device times of calls and instructions, by events around each, and what of their numbers was first not finite. Streams may be issued by
// threads of their own.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/core/timeline.h"
#include "executor/cuda/handles.h"

namespace plimsoll::executor {

class Recorder {
 public:
  struct Mark {
    std::string name;
    std::string detail;
    std::size_t stream = 0;
    std::int32_t micro_batch = 0;
    Event begin{};
    Event end{};
  };

  Recorder(cudaStream_t first, bool looks) : start_(now(first)), looks_(looks) {}

  static Event now(cudaStream_t stream) {
    Event event = make_event(true);
    kernels::cuda::check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
    return event;
  }
  void note(Mark mark) {
    const std::lock_guard lock(mutex_);
    marks_.push_back(std::move(mark));
  }

  bool looks() {
    const std::lock_guard lock(mutex_);
    return looks_ && !not_finite_;
  }
  void note(const NotFinite& met) {
    const std::lock_guard lock(mutex_);
    if (!not_finite_) not_finite_ = met;
  }

  // After everything has run.
  void write(Timeline& timeline) const {
    timeline.not_finite = not_finite_;
    const auto seconds = [&](const Event& event) {
      float milliseconds = 0.0f;
      kernels::cuda::check(cudaEventElapsedTime(&milliseconds, start_.get(), event.get()), "cudaEventElapsedTime");
      return static_cast<double>(milliseconds) * 1e-3;
    };
    for (const Mark& mark : marks_) {
      timeline.events.push_back(
          {mark.name, mark.detail, static_cast<std::int32_t>(mark.stream), mark.micro_batch, seconds(mark.begin), seconds(mark.end)});
    }
  }

 private:
  Event start_;
  std::mutex mutex_;
  std::vector<Mark> marks_;
  bool looks_;
  std::optional<NotFinite> not_finite_;
};

}  // namespace plimsoll::executor
