// What executors of several plans on one device have in common: the memory behind what their programs keep, and the streams. They run in
// turn; what outlives a program lies in an arena of each plan's own, so a model waits for its next turn at the price of its weights and
// optimizer state alone:
//   const plan::Plan* const plans[] = {&one, &other};
//   const std::unique_ptr<SharedDevice> device = backend.share(plans, rank);
//   const std::unique_ptr<Executor> first = backend.make_executor(one, {.rank = rank, .shared = device.get()});  // and the other's
//
// What the host writes before a program or reads after it, such as tokens and logits, is there until another's program runs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/error.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class SharedDevice {
 public:
  virtual ~SharedDevice() = default;

  // By tier: what a program has for itself while it runs. None on disk, where executors have files of their own.
  virtual std::span<std::byte> passing(plan::Tier tier) const = 0;

  // While one is there, nobody else runs.
  class Turn {
   public:
    Turn(SharedDevice& device, std::string_view program) : device_(device) {
      PLIMSOLL_CHECK(!device_.taken_.exchange(true), "{} begins while another plan's program runs on the device", program);
    }
    ~Turn() { device_.taken_ = false; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SharedDevice& device_;
  };

 private:
  std::atomic<bool> taken_{false};
};

// What the largest of the plans needs there on that rank.
base::Bytes passing_bytes(std::span<const plan::Plan* const> plans, std::int32_t rank, plan::Tier tier);

}  // namespace plimsoll::executor
