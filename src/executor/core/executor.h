// What every executor offers: it holds the arenas of one rank of a plan and runs the plan's programs on them.
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "executor/core/timeline.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// What a device reports of itself, for the metrics.
struct DeviceReading {
  base::Bytes memory{};  // in use by all processes
  double watts = 0.0;
  double megahertz = 0.0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs the program once, from its first call to the end of its last. With a timeline, every call and instruction is
  // recorded there.
  virtual void run(std::string_view program, Timeline* timeline = nullptr) = 0;

  // Host access to a buffer between programs: initial weights, tokens, losses, checkpoints. Arenas hold zeros at first.
  //
  // On the processor this is the buffer itself. A device shows a copy: `read` and `update` bring what is there now (so a
  // program's results are seen by asking after it ran), and what is written to it after `write` or `update` goes to the
  // device before the next program starts. The address of a buffer's view never changes, and a view that nobody asks for
  // again keeps what it held: a checkpoint can be written from it while the next step runs.
  virtual std::byte* host_view(plan::BufferId buffer, plan::Access access = plan::Access::update) = 0;

  // The same for bytes [first, first + size) of a buffer wherever it is: what lies on disk has no view. In memory this is a copy
  // from or to the view. Several threads may read at once, beside a program that does not write there.
  virtual void read(plan::BufferId buffer, std::int64_t first, std::span<std::byte> out) {
    std::memcpy(out.data(), host_view(buffer, plan::Access::read) + first, out.size());
  }
  virtual void write(plan::BufferId buffer, std::int64_t first, std::span<const std::byte> data) {
    std::memcpy(host_view(buffer, plan::Access::update) + first, data.data(), data.size());
  }

  // Whether the view is where the buffer lies. What is not is better written piece by piece with write(): views of a device's buffers are
  // memory of the host too.
  virtual bool is_in_host_memory(plan::BufferId buffer) const { return rank_class().buffers[buffer].tier != plan::Tier::disk; }

  // (optional) As of the last second; nullopt where the device tells nothing.
  virtual std::optional<DeviceReading> reading() { return std::nullopt; }

  virtual const plan::RankClass& rank_class() const = 0;

  // Where on the data axis this rank sits: which shard is its own.
  virtual std::int64_t data_place() const = 0;

  // Before every call of a program `hook` is asked, on the thread that runs the call: a save that still reads what the
  // call will overwrite makes it wait. An empty function: nobody is asked.
  void set_before_call(std::function<void(const plan::Call&)> hook) { before_call_ = std::move(hook); }

 protected:
  void ask_before(const plan::Call& call) const {
    if (before_call_) before_call_(call);
  }

 private:
  std::function<void(const plan::Call&)> before_call_;
};

}  // namespace plimsoll::executor
