// A strategy answers three questions about a step whose mathematics is already fixed, and nothing else:
//   where each tensor lives         (degrees of the mesh axes, ZeRO stage, sequence parallelism, stages),
//   how long and in which tier      (recompute, offload, limits),
//   when each piece runs            (micro-batches, pipeline schedule, prefetch distance, weight versions).
// It is plain data. `legality.h` says which strategies can be run and why the others cannot; `lowering` turns a legal
// one into a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codecs/choice.h"
#include "ops/axes.h"

namespace plimsoll::strategy {

enum class Recompute { none, full, selective, optimal };

// What share of a tensor group's bytes lives in each slower tier; the rest stays on the device.
struct TierShare {
  double host = 0.0;
  double disk = 0.0;

  bool anything() const { return host > 0.0 || disk > 0.0; }
  bool operator==(const TierShare&) const = default;
};

struct Offload {
  TierShare optimizer;
  TierShare gradients;
  TierShare params;
  TierShare activations;

  bool operator==(const Offload&) const = default;
};

// One pipeline stage; `blocks` counts the model's repeated layers in it. Degrees of zero are the strategy's.
struct Stage {
  std::int64_t blocks = 0;
  std::int64_t data = 0;
  std::int64_t tensor = 0;

  bool operator==(const Stage&) const = default;
};

enum class StagePartition { equal, by_cost, listed };

enum class Reduce { ring, main };

// Where the token table is: with the other weights, or on disk, whence a step brings the rows that it reads. The optimizer then updates
// these rows alone.
enum class EmbeddingRows { whole, disk };

// Whether updates that the host makes behind a verdict wait for the next step, to run under its forward pass.
enum class CarryUpdate { automatic, always, never };

// How many ranks an axis has.
struct AxisDegree {
  ops::AxisRow row;
  std::int64_t degree = 1;

  bool operator==(const AxisDegree&) const = default;
};

struct Strategy {
  // where
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t zero_group = 0;  // neighbouring data ranks that share tensors out, the groups being alike; 0: all data ranks
  bool sequence_parallel = false;
  bool scatter_boundaries = true;  // a tensor rank sends its rows of what all of them have to the next stage, where they are gathered
  Reduce reduce = Reduce::ring;
  StagePartition partition = StagePartition::equal;
  std::vector<Stage> stages;       // only with StagePartition::listed
  std::vector<AxisDegree> more{};  // axes beside these three, each behind the one that it is inside of

  // how long
  Recompute recompute = Recompute::none;
  std::int64_t recompute_every = 1;  // full: the inputs of every so many blocks are kept
  double recompute_memory = 0.0;     // optimal: share of the activation memory it may use; zero: what the device's limit leaves
  bool split_activations = false;    // tensor ranks keep a part each of the activations that all of them have
  Offload offload;
  EmbeddingRows embedding_rows = EmbeddingRows::whole;
  codecs::Choices communication{};  // what is sent in fewer bytes
  base::Bytes tile{};  // weight matrices of more bytes on a rank are computed with in tiles of rows, each a tensor of its own; 0: none

  // when
  std::int64_t chunks = 1;  // pipeline stages per rank
  std::string schedule = "1f1b";
  std::int64_t flush_every = 1;  // schedules without a flush: updates until all ranks wait for one another, to save or evaluate
  base::Bytes bucket{25'000'000};
  std::int64_t prefetch = 2;
  bool keep_params = false;
  bool keep_grads = true;
  bool delayed_update = false;
  CarryUpdate carry_update = CarryUpdate::automatic;

  // Some stage has other degrees than data x tensor.
  bool own_degrees() const;
  std::int64_t ranks() const;
  // Every axis of its own, outermost first.
  std::vector<AxisDegree> degrees() const;
  // Ranks of the axes in `more`: of all together, or of those that share this out.
  std::int64_t more_ranks() const;
  std::int64_t more_ranks(ops::Shares shares) const;
  // Ranks that are inside one place of the axis; stages have no degrees of their own.
  std::int64_t stride(const ops::Axis& axis) const;
  // Ranks that each take a share of the batch.
  std::int64_t batch_ranks() const { return data * more_ranks(ops::Shares::batch); }
  // Pipelines beside each other, each with its share of the batch. Stages with degrees of their own are one pipeline: a stage's data
  // ranks take its micro-batches in turn.
  std::int64_t pipelines() const { return own_degrees() ? 1 : batch_ranks(); }
  // So many micro-batches give every rank of a stage equally many.
  std::int64_t turn() const;
  std::int64_t widest_tensor() const;
  // As the stage at a place of the pipe axis has it: with its own degrees.
  Strategy at(std::int64_t pipe_place) const;
  // Data ranks over which a tensor is split.
  std::int64_t shards() const { return zero_group > 0 ? zero_group : data; }
  bool operator==(const Strategy&) const = default;
};

// What the machine allows, per tier; zero means "what is there".
struct Limits {
  base::Bytes device;
  base::Bytes host;
  base::Bytes disk;
  std::string disk_path;

  bool operator==(const Limits&) const = default;
};

}  // namespace plimsoll::strategy
