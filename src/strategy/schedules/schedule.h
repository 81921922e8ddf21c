// A pipeline schedule as data: for every rank the order of its pieces, and which version of the weights each piece uses.
//
//   rank         one place of the pipe axis
//   stage        one of ranks x chunks consecutive parts of the model ("virtual stage"); a rank with v chunks holds v of them
//   micro-batch  numbered from 0 through all batches of the schedule
//   version      how many updates the weights had seen: a synchronous step uses version 0 and its update makes version 1
//
// A schedule says nothing of messages, buffers or time: what a piece needs from others follows from its stage and micro-batch,
// so one description serves the verifier, the simulator, the drawings and lowering. Adding one is adding one file that fills
// such lists and one row of the table (table.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::strategy::schedules {

enum class Work : std::uint8_t {
  forward,
  backward,         // gradients of inputs and weights
  backward_input,   // of inputs alone: what the stage before waits for
  backward_weight,  // of weights, any time after backward_input
  recompute,        // the forward again, for its activations
  update            // of all the rank's weights; has neither stage nor micro-batch
};

inline constexpr std::int32_t kNone = -1;

struct Item {
  Work work = Work::forward;
  bool joined = false;  // with the item after it: they run as one piece that starts when both can and ends with both
  std::int32_t stage = kNone;
  std::int32_t micro_batch = kNone;
  std::int32_t version = 0;  // used; by an update: made

  bool operator==(const Item&) const = default;
};

struct Shape {
  std::int64_t ranks = 1;
  std::int64_t micro_batches = 1;  // between two updates
  std::int64_t chunks = 1;         // stages of a rank
  std::int64_t batches = 1;        // laid out one after another; more than one only where no flush parts them

  std::int64_t stages() const { return ranks * chunks; }
  std::int64_t all_micro_batches() const { return micro_batches * batches; }
  bool operator==(const Shape&) const = default;
};

enum class Placement {
  looped,    // stage s on rank s mod p
  vee,       // to and fro: 0, 1, ..., p-1, p-1, ..., 1, 0, 0, ...
  both_ways  // every stage twice: the first half of the micro-batches goes up the ranks, the second half down
};

struct Schedule {
  std::string name;
  Shape shape;
  Placement placement = Placement::looped;
  bool barrier = true;  // the step ends when all ranks have ended; without, each rank goes on by itself
  std::vector<std::vector<Item>> ranks;

  std::int32_t rank_of(std::int32_t stage, std::int32_t micro_batch) const;
  bool operator==(const Schedule&) const = default;
};

std::int32_t rank_of(const Shape& shape, Placement placement, std::int32_t stage, std::int32_t micro_batch);

// The names of a schedule file: "forward", "backward", "backward_input", ...
std::string_view name_of(Work work);
// "forward of micro-batch 3 in stage 1" - for messages.
std::string describe(const Item& item);
// "F1.3": letter, stage, micro-batch - for golden orders. F forward, B backward, I backward_input, W backward_weight, R recompute;
// an update is "U" and the version it makes; a joined item ends with "+".
std::string short_name(const Item& item);
std::string short_names(const std::vector<Item>& items);

inline bool is_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

// The same schedule with activations kept only between a recompute and its backward: each backward gets a recompute before it,
// except right after its own forward, whose activations are still there.
Schedule with_recompute(Schedule schedule);

}  // namespace plimsoll::strategy::schedules
