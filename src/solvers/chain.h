// A training step seen as a chain of stages, each with a forward and a backward pass, and an order in which to run them when not
// everything they make can be kept. What rotor.h searches and what an order is checked by.
//
// Words, for stage i: its *output* is what stage i + 1 reads; a *form* is a set of values kept for its backward pass, its output
// among them; its *gradient* is that of its output. A forward pass makes the output alone or a form; a backward pass needs
// a form, the gradient of the output, and the output of the stage before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::solvers {

// One way to keep what the backward pass reads: all of it, or less with some of it made again.
struct ChainForm {
  std::int64_t saved = 0;      // bytes, with the stage's output
  double backward = 0.0;       // time of the backward pass, and of making again what is missing
  std::int64_t temporary = 0;  // bytes that the backward pass needs beside what is kept, the gradient it makes included
};

struct ChainStage {
  std::int64_t output = 0;            // bytes
  std::int64_t gradient = 0;          // bytes: of the output
  std::int64_t weight_gradients = 0;  // bytes that the backward pass leaves for the rest of the step
  double forward = 0.0;               // time
  double forward_again = 0.0;         // time where the gradient of the output is there, so that nobody needs the output any more
  std::int64_t temporary = 0;         // bytes that the forward pass needs beside what it reads and makes
  std::vector<ChainForm> forms;       // at least one
};

struct Chain {
  std::int64_t input = 0;  // bytes that the first stage reads; they stay
  std::vector<ChainStage> stages;
};

struct ChainStep {
  enum class Work : std::uint8_t { forward, backward } work = Work::forward;
  std::int32_t stage = 0;
  std::int32_t form = kOutputOnly;  // of a forward pass: what it keeps; of a backward pass: what it reads
  bool frees_input = false;         // of a forward pass: the stage's input is not kept behind it

  static constexpr std::int32_t kOutputOnly = -1;
  bool operator==(const ChainStep&) const = default;
};

using ChainOrder = std::vector<ChainStep>;

struct ChainCost {
  double time = 0.0;
  std::int64_t peak = 0;               // bytes, the chain's input included
  std::vector<std::int32_t> forwards;  // runs of each stage's forward pass
};

// Runs the order on paper: every forward and backward pass has what it needs, every stage has one backward pass. Internal error
// with the step otherwise.
ChainCost replay(const Chain& chain, const ChainOrder& order);

// Every stage once forward, keeping its form `form`, and once backward.
ChainOrder keep_all(const Chain& chain, std::int32_t form = 0);

// "F1ck F2n F3e0 B3": the notation of the literature, stages counted from 1.
std::string to_string(const ChainOrder& order);

}  // namespace plimsoll::solvers
