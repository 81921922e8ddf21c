// A model ready to train on this machine: graphs, plan and executor put together, and one call per step.
//   Session session({.forward = forward_of(*model::preset("gpt2")), .name = "gpt2", .training = training, .threads = 2});
//   fill(session.input("train", "tokens", 0), session.input("train", "targets", 0), session.input("train", "positions", 0));
//   const StepResult result = session.step({.learning_rate = 3e-4f, .step = 1, .valid_targets = 4096});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/transport.h"
#include "executor/core/backend.h"
#include "graph/programs/programs.h"
#include "lowering/lower.h"
#include "model/model.h"
#include "ops/step_scalars.h"
#include "plan/plan.h"
#include "strategy/schedules/schedule.h"
#include "strategy/strategy.h"
#include "train/session/buffers.h"

namespace plimsoll::train {

// Generating with a cache: how many positions it has, and how many tokens of a prompt are read at a time.
struct Decoding {
  std::int64_t slots = 1;
  std::int64_t prompt_rows = 1;
};

// The programs that sessions have by themselves.
inline constexpr std::string_view kTrain = "train";
inline constexpr std::string_view kEvaluate = "evaluate";
inline constexpr std::string_view kInfer = "infer";
inline constexpr std::string_view kDecode = "decode";
inline constexpr std::string_view kPrefill = "prefill";

// A program beside those: what it does is written from the training graph, with whose values it shares memory by their names.
struct AddedProgram {
  std::string name;
  plan::Cadence cadence = {};
  std::function<graph::Graph(const graph::Graph& trained)> write = {};
  std::string role = {};  // of the ranks that have it; empty: all of them
};

struct SessionOptions {
  graph::WriteForward forward;  // the model's forward pass; see forward_of
  std::string name;             // of the model, for people
  model::Training training;
  std::int32_t micro_batches = 1;  // of each rank, in a step
  strategy::Strategy strategy = {};
  std::optional<strategy::schedules::Schedule> schedule = {};  // of a pipeline; else made as the strategy names it
  collectives::Transport* transport = nullptr;                 // to the other ranks, where the strategy has several; outlives the session
  const executor::Backend* backend = nullptr;                  // where to run; null: the processor
  io::FileSystem* file_system = nullptr;                       // for the disk tier; null: this machine's
  executor::SharedDevice* shared = nullptr;                    // in common with other sessions, which run in turn; outlives them
  std::string disk_folder = {};                                // of the disk tier, where the strategy has one
  bool deterministic = true;                                   // same run, same bits; false allows kernels that add in any order
  int threads = 0;                                             // of each rank; 0: the cores of the machine, dealt out evenly
  base::Bytes device_limit = {};                               // of a rank's arena, where the strategy is fitted to it; zero: none
  base::Bytes host_limit = {};                                 // of all ranks' in the host's memory, likewise
  double link = 0.0;  // bytes to or from the tier of activations in the time of one floating-point operation; zero: a guess
  std::uint64_t seed = 1;
  bool draw_parameters = true;  // false: whoever makes the session writes every parameter before it runs
  bool train = true;            // which programs to plan
  bool evaluate = false;
  std::int32_t evaluation_turns = 1;            // micro-batches of each rank in the evaluation program: a pipeline works on several at once
  bool keep_gradients = false;                  // until the end of the train program, for whoever wants to look at them
  std::optional<model::MicroBatch> infer = {};  // the shape of the inference program, where there is one
  std::optional<Decoding> decode = {};          // programs that continue a text by a cache of keys and values
  std::vector<AddedProgram> programs = {};      // more of them
  lowering::RoleOf role_of = {};                // of ranks, where they have programs of their own
  graph::PassDone pass_done = {};               // told of the passes over the training graph, and over the first rank's part of it
};

graph::WriteForward forward_of(const model::Model& model);

// A program before it is lowered.
struct ProgramSource {
  std::string name;
  graph::Graph graph;
  std::int32_t micro_batches = 1;
  plan::Cadence cadence = {};
  std::string role = {};
};

// A session without memory: its plan can be looked at, and then run as it is.
struct PreparedSession {
  SessionOptions options;               // with what all ranks agreed on, and what follows from the strategy
  std::vector<ProgramSource> programs;  // of all ranks; training comes first
  plan::Plan plan;
};
// Ranks that share limits they measured by themselves meet here.
PreparedSession prepare_session(SessionOptions options);

// The plan alone, of ranks that need not be there: what `plimsoll plan` shows.
plan::Plan plan_session(const SessionOptions& options);
// Its outline, for a cluster on which the plan would be too large (lowering/outline.h).
plan::Plan outline_session(const SessionOptions& options);

struct StepInputs {
  float learning_rate = 0.0f;
  std::uint32_t step = 0;
  std::int64_t valid_targets = 1;  // of the whole global batch
};

struct StepResult {
  double loss = 0.0;           // mean over valid targets, before the update
  double gradient_norm = 0.0;  // before clipping
  float loss_scale = 1.0f;
  bool skipped = false;
};

class Session {
 public:
  explicit Session(SessionOptions options) : Session(prepare_session(std::move(options))) {}
  explicit Session(PreparedSession prepared);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) = delete;

  const plan::Plan& plan() const;
  std::int32_t rank() const;
  const graph::Graph& graph() const;  // of the first program
  std::uint64_t seed() const;
  const std::optional<Decoding>& decoding() const;
  executor::Executor& executor();
  const Buffers& buffers() const;

  // To be filled before every step: its memory serves other purposes once it has been read.
  // Integer input `value` of a micro-batch: tokens, targets, positions, segments, token_types, samples. Empty when the
  // model does not read it.
  std::span<std::int32_t> input(std::string_view program, std::string_view value, std::int32_t micro_batch);
  // Those of a step of the program, to change them, and as the last program left them. What outlives a step is in the first.
  ops::StepScalars& scalars(std::size_t step = 0);
  const ops::StepScalars& scalars_now(std::size_t step = 0) const;

  // All ranks, and some of them, for what is done between programs; null when there is one. Those of data_group share out the batch, those
  // of shard_group tensors in shards.
  collectives::Group* world();
  collectives::Group* data_group();
  collectives::Group* shard_group();
  collectives::Group* tensor_group();
  // Weights in the compute type, from their masters; called by all ranks together.
  void refresh_weights();

  // With the programs whose turn it is before and behind it.
  StepResult step(const StepInputs& inputs, executor::Timeline* timeline = nullptr);
  // As many steps as the strategy has until a flush; the micro-batches of all of them have been filled.
  std::vector<StepResult> steps(std::span<const StepInputs> inputs, executor::Timeline* timeline = nullptr);
  // Makes the update that the last step left to the next one, if it did: whoever looks at weights or optimizer state between steps asks for
  // this first. All ranks together. The other programs do it themselves.
  void settle();
  // Whether steps leave their updates to the next ones.
  bool carries_updates() const;
  // Whether the last step left its update to the next one. Where it did not, or it is settled, the next step's calls for it change nothing.
  bool update_waits() const;
  // Sum of the losses of the evaluation program's micro-batches; nothing that training keeps is changed.
  double evaluate();
  // Runs the inference program; logits (rows, vocab) in the compute type.
  void infer();
  // Runs the program that puts a piece of a prompt, or one token, into the cache; the latter gives its logits (1, vocab).
  void prefill();
  void decode();
  // Runs a program by its name, with those that work for it around it: one that was added, when somebody wants it. Ranks whose role does
  // not have it do nothing.
  void run(std::string_view program);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::train
