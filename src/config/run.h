// A run as the user described it: every setting of the run file, typed, and where each value came from.
//
// `Settings` is plain data with the defaults written beside the fields; fields.cpp binds each to its key in the file.
// Defaults that depend on other settings (marked "derived") are filled in by derive.cpp after reading.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model.h"
#include "model/training.h"
#include "strategy/strategy.h"

namespace plimsoll::config {

enum class Device { automatic, cpu, cuda };
enum class Transport { automatic, local, mpi, nccl };
// The order in which ranks add: a left fold by rank, the same bits on every transport, or the transport's own.
enum class Sums { canonical, fast };
enum class LrScheduleType { constant, linear, cosine, wsd, points };
enum class OnFullDisk { stop, retry };
enum class WarmupShape { linear, log };

struct Data {
  // Files, folders and patterns, read one after the other in this order.
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::string tokenizer = "bytes";
  bool shuffle = true;
  std::int64_t token_bytes = 2;  // of token files without a header
  bool mask_documents = false;
  std::int64_t document_end = -1;  // the token that ends a document; -1: the file's own index says where they end

  bool operator==(const Data&) const = default;
};

// Masked language modelling: of the chosen tokens, `mask` become the mask token, `random` another one, the rest stay.
struct Mlm {
  double probability = 0.15;
  double mask = 0.8;
  double random = 0.1;
  static constexpr std::int64_t kNone = -1;  // the tokenizer has no such token
  std::int64_t mask_token = 103;

  bool operator==(const Mlm&) const = default;
};

struct Batch {
  std::int64_t global = 8;    // sequences in a step, over all ranks
  std::int64_t micro = 8;     // sequences a rank works on at a time; derived
  std::int64_t sequence = 0;  // tokens of a sequence; derived, 0 while a model path has not been read

  bool operator==(const Batch&) const = default;
};

struct LrPoint {
  std::int64_t step = 0;
  double ratio = 1.0;

  bool operator==(const LrPoint&) const = default;
};

// All counts are steps. After the warmup the rate stays, or falls to min_ratio of the learning rate at step `end`.
struct LrSchedule {
  LrScheduleType type = LrScheduleType::constant;
  std::int64_t warmup = 0;
  double min_ratio = 0.0;
  std::int64_t decay = 0;  // wsd: length of the final fall; derived
  WarmupShape warmup_shape = WarmupShape::linear;
  double warmup_from = 0.0;     // the share of the learning rate that the warmup starts at
  std::int64_t end = 0;         // 0 = the last step
  std::vector<LrPoint> points;  // type `points`: straight lines between these

  bool operator==(const LrSchedule&) const = default;
};

struct Eval {
  std::int64_t every = 100;
  std::int64_t batches = 20;  // 0 = the whole of data.valid

  bool operator==(const Eval&) const = default;
};

struct Checkpoint {
  std::int64_t every = 100;  // 0 = at the end only
  std::int64_t keep = 2;     // never less: there must be one to fall back to
  bool async = true;         // written beside training
  OnFullDisk on_full_disk = OnFullDisk::stop;
  double retry_seconds = 10.0;

  bool operator==(const Checkpoint&) const = default;
};

struct Communication {
  Sums sums = Sums::fast;

  bool operator==(const Communication&) const = default;
};

struct Settings {
  model::Model model;
  std::string model_path;      // a Hugging Face directory, instead of a description; see resolve_model
  base::Json model_overrides;  // with a path: the keys that may differ from what the directory says
  Data data;
  Mlm mlm;
  Batch batch;
  model::Optimizer optimizer;
  double lr = 3e-4;  // optimizer.lr: the peak of the schedule
  LrSchedule lr_schedule;
  model::LossScaling loss_scale;
  std::int64_t amax_history = 0;  // fp8.history
  model::Precision precision = model::Precision::f32;
  bool precision_auto = false;  // the planner chooses with the strategy
  Device device = Device::automatic;
  bool strategy_auto = false;  // the planner chooses; `strategy` then holds defaults
  strategy::Strategy strategy;
  strategy::Limits limits;
  double silence_limit = 5.0;  // seconds
  double wait_limit = 600.0;
  std::int64_t not_finite_limit = 10;  // steps in a row
  std::int64_t steps = 1000;
  std::int64_t seed = 1;
  std::int64_t threads = 0;  // 0 = all cores
  bool deterministic = true;
  Transport transport = Transport::automatic;
  Communication communication;
  std::vector<std::string> freeze;
  const ops::FormInfo* freeze_as = nullptr;
  Eval eval;
  std::string out;  // derived
  Checkpoint checkpoint;

  bool operator==(const Settings&) const = default;
};

enum class OriginKind { default_value, file, set, deepspeed, preset, model_path, tokenizer, derived };

// `text` is what a reader is shown: "run.json:3:12", "--set steps=5", "preset gpt2", "derived: width / heads".
struct Origin {
  OriginKind kind = OriginKind::default_value;
  std::string text = "default";
};

// One key of a DeepSpeed file and what became of it.
struct DeepSpeedOutcome {
  std::string key;
  std::string value;
  std::string where;
  std::string outcome;
  bool differs = false;  // it has no counterpart, so `outcome` is what happens instead
};

struct DeepSpeedReport {
  std::vector<DeepSpeedOutcome> keys;
  std::string equation;  // of the batch, with its numbers
};

struct Run : Settings {
  std::string name;    // what the run file is called in messages
  std::string preset;  // of the model, when it came from one
  std::map<std::string, Origin, std::less<>> origins;
  std::vector<std::string> notes = {};  // where given values and the tokenizer say different things
  DeepSpeedReport deepspeed;

  const Origin& origin(std::string_view key) const;
  bool given(std::string_view key) const;         // by the file, a DeepSpeed file or --set
  std::string where(std::string_view key) const;  // for messages: the place when given, else the file's name

  // Micro-batches that one rank works through in a step.
  std::int64_t micro_batches() const { return batch.global / (batch.micro * (strategy_auto ? 1 : strategy.pipelines())); }
  // What the graph needs to know. Whether attention is segmented depends on the data, so that is left false.
  model::Training training() const;

  // Runs are equal when their settings are, wherever the values came from.
  bool operator==(const Run& other) const { return static_cast<const Settings&>(*this) == other; }
};

std::string_view name_of(model::Precision precision);
model::Precision precision_named(std::string_view name);  // one of those names
std::string_view name_of(Device device);
std::string_view name_of(Transport transport);
std::string_view name_of(LrScheduleType type);

}  // namespace plimsoll::config
