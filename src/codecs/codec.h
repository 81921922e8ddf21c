// A codec: what ranks send instead of a tensor as it is, in one file each (bf16.cpp, forms.cpp).
//
// Passes that put collectives and messages between ranks hand a codec a Task: operands, what each rank is to have of them afterwards, among
// whom. The codec writes a piece of graph that does so with a Builder, of any number of collectives, operators and states. Prices,
// drawings, the simulator, checkpoints and the printed plan see that graph like any other.
//
// A codec that must wait for what others send gives a Flight: the values so far, and the step that goes on with them. The pass runs it when
// other buckets have left, so that what is computed and what is under way overlap.
//
// Sums are left folds in the order of the ranks, in f32. What is summed is encoded once by who has it and, where all are to have the sum,
// once more by who made it: never for each hop of a ring.
//
// To add one: a file here and a row in table.cpp. Code outside hands in a row of its own (Choice::codec).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/choice.h"
#include "graph/rewrite.h"
#include "ops/forms/form.h"

namespace plimsoll::codecs {

using graph::ValueId;

enum class Wanted : std::uint8_t {
  sum,      // every rank has the sum of all
  shard,    // every rank has its part of the sum
  gather,   // every rank has the parts of all
  message,  // another rank has it
};

// What a codec is asked before anything is written: a tensor as all ranks together have it.
struct Ask {
  Choice choice{};
  Wanted wanted = Wanted::sum;
  base::TensorType type{};  // in rows and columns where it is a matrix; flat and padded where ranks share it out
  std::int64_t members = 1;
};

struct Operand {
  ValueId value{};        // what this rank has; of a message that is received, nothing
  std::string name{};     // of what is made of it
  base::TensorType type;  // of what comes of it
  base::Shape whole{};    // of the tensor that it is flattened from, for codecs that see matrices
  // Where states may be kept: a root that lies as the operand does, from which their names and parts are taken. Nothing is remembered
  // where it is invalid.
  ValueId like{};
  std::int64_t shard = 0;  // elements that each rank owns of it, flat and padded
};

struct Task {
  Wanted wanted = Wanted::sum;
  ops::Collective plain{};  // what stands there without a codec
  ops::Message message{};   // likewise, with Wanted::message
  graph::Site site{};
  Choice choice{};
  std::vector<Operand> operands{};
};

class Builder;
struct Flight;
using Step = Flight (*)(Builder& build, const Task& task, const std::vector<ValueId>& values);

// Values of a task between two steps; without a next one, its results: one for each operand.
struct Flight {
  std::vector<ValueId> values{};
  Step next = nullptr;
};

// A setting of a codec, in the run file {"codec": NAME, SETTING: value}.
struct Number {
  std::string_view name;
  std::string_view about;  // one sentence
  double usual = 0.0;
  double least = 0.0;
  double most = 1.0;
  bool flag = false;             // true or false
  bool gradients_alone = false;  // means something for gradients, and is 0 for all else
};

struct Codec {
  std::string_view name;   // "bf16"
  std::string_view about;  // a few words
  std::span<const Number> numbers{};
  Flight (*emit)(Builder& build, const Task& task) = nullptr;
  // Bytes that the member at place 0 sends, by closed form.
  std::int64_t (*wire_bytes)(const Ask& ask) = nullptr;
  // (optional) Why a tensor is sent as it is; empty: it is not. Null: none is.
  std::string (*exact)(const Ask& ask) = nullptr;
  // (optional) It remembers something from step to step. Null: nothing.
  bool (*remembers)(const Numbers& numbers) = nullptr;
  // (optional) The form of what it sends.
  const ops::FormInfo* form = nullptr;
};

inline bool remembers(const Choice& choice) { return choice.any() && choice.codec->remembers && choice.codec->remembers(choice.numbers); }

// Why the tensor is sent as it is; empty: it is not.
std::string why_exact(const Ask& ask);

// Bytes that the member at place 0 sends without a codec.
std::int64_t plain_bytes(const Ask& ask);
std::int64_t wire_bytes(const Ask& ask);

// All steps of a task at once.
std::vector<ValueId> emit(Builder& build, const Task& task);

}  // namespace plimsoll::codecs
