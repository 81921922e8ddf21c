// Device times of calls and instructions, by events around each. Streams may be issued by threads of their own.
#pragma once

#include <cstdint>
#include <mutex>
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

  explicit Recorder(cudaStream_t first) : start_(now(first)) {}

  static Event now(cudaStream_t stream) {
    Event event = make_event(true);
    kernels::cuda::check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
    return event;
  }
  void note(Mark mark) {
    const std::lock_guard lock(mutex_);
    marks_.push_back(std::move(mark));
  }

  // After everything has run.
  void write(Timeline& timeline) const {
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
};

}  // namespace plimsoll::executor
