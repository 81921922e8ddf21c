// A choice with everything that follows from it before a schedule is run: what each stage and each rank of the pipe axis computes, holds
// and says, and the closed forms of how long that takes at least.
#pragma once

#include <algorithm>

#include "codecs/codec.h"
#include "planner/price_table.h"
#include "planner/problem.h"
#include "strategy/schedules/table.h"

namespace plimsoll::planner {

inline double as_double(std::int64_t count) { return static_cast<double>(count); }

// What a rank of the pipe axis has of all its stages; of what stages differ in, the most.
struct RankPrice {
  double work = 0.0;            // of a micro-batch
  double forward = 0.0;         // of a micro-batch
  double backward = 0.0;        // of a micro-batch
  std::int64_t kept = 0;        // by all its stages for a micro-batch
  std::int64_t kept_least = 0;  // by one of its stages at least, with either part of its backward pass to come
  std::int64_t temporary = 0;
  std::int64_t layers = 0;
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  double update = 0.0;
  std::int64_t end_weights = 0;  // of the embedding and the head, which are gathered and reduced whole too
  std::int64_t end_gradients = 0;
  std::int64_t largest_end_weights = 0;  // of one of them
  std::int64_t largest_end_gradients = 0;
  bool has_head = false;
  bool tied = false;       // has a weight that another stage has too
  bool has_table = false;  // has the embedding
};

// A moment of a rank's order: what micro-batches keep for their backward passes, and of the rank's gradients the share of stages that have
// begun theirs. A backward pass lets go of activations while its gradients come.
struct Moment {
  double begun = 0.0;
  double then = 0.0;  // behind the backward pass that begins
  std::int64_t kept = 0;
  std::int64_t leaves = 0;   // of `kept`, behind it
  bool is_backward = false;  // else a forward pass has ended, or gradients of inputs alone are made
};

class Sheet {
 public:
  // `fits`: stages that keep what their memory allows (recompute "optimal" in a pipeline) do; else they take as little as any of them
  // could, of time and of memory.
  Sheet(const Problem& problem, const Choice& choice, PriceTable& prices, bool fits = true);

  const std::vector<StagePrice>& stages() const { return stages_; }
  const std::vector<RankPrice>& ranks() const { return ranks_; }
  // From each rank of the pipe axis to the next, and from the last to the first.
  const std::vector<Wires::Hop>& hops() const { return hops_; }

  // Seconds of a rank's gradients on the wires that its last backward pass does not hide.
  double exposed_reduction(const RankPrice& rank) const;
  // Behind the last reduction, which all ranks wait for: the update, and where only shards of weights were updated, their gather.
  double most_update() const;
  // Of a rank at the fullest of these moments.
  Memory memory(const RankPrice& rank, const std::vector<Moment>& moments) const;
  // Without other micro-batches a gradient begins where activations end, so both are never there in full.
  bool alone() const { return micro_batches_ == 1 && strategy_.pipe == 1; }
  // Both surely are: forward passes go on where all gradients have begun.
  bool surely_together(std::size_t rank) const;

  // Closed forms, never above what running the schedule finds: bytes that a rank keeps; the passes; the passes and their reductions.
  std::int64_t least_kept(std::size_t rank) const;
  std::vector<Moment> least_moments(std::size_t rank) const;
  double least_passes() const;
  double least_seconds() const;

 private:
  // In a pipeline, recompute "optimal": each stage keeps as much as its rank's memory holds of the micro-batches that are under way.
  bool fitted_stages() const { return strategy_.pipe > 1 && strategy_.recompute == strategy::Recompute::optimal; }
  // Gradients of weights come apart from those of inputs.
  bool splits_backward() const { return strategy_.pipe > 1 && strategy::schedules::find_kind(strategy_.schedule).splits_backward; }
  void keep_what_fits();
  void keep_within(StagePrice& stage, std::int64_t bytes) const;
  void keep_least();
  void wait_for_what_moves();
  // Of a stage's layers, those whose activations leave the device, and the bytes of one.
  std::int64_t leaving_layers(std::int64_t layers) const;
  std::int64_t leaving_bytes() const;
  // What is there of a rank's gradients: between its passes, and at the most while a backward pass goes on, all the others' included.
  struct Gradients {
    std::int64_t stay = 0;
    std::int64_t pass = 0;    // bytes that come and go
    std::int64_t first = 0;   // of them, where a pass begins
    std::int64_t middle = 0;  // of them, among the layers
  };
  Gradients gradients(const RankPrice& rank) const;
  // What is there of a rank's weights: in the forward pass, and where a backward pass begins, goes on and ends.
  struct Weights {
    std::int64_t forward = 0;
    std::int64_t start = 0;
    std::int64_t middle = 0;
    std::int64_t end = 0;
  };
  Weights weights(const RankPrice& rank) const;
  void put_away(Memory& memory, const RankPrice& rank) const;
  std::int64_t sent_away(const RankPrice& rank) const;
  // On the device of so many neighbouring blocks, the fullest of them: at an end of the model, or between. Or as many tiles.
  std::int64_t window(std::int64_t blocks, std::int64_t layers, std::int64_t of_layer, std::int64_t of_end, std::int64_t of_ends) const;
  std::int64_t waiting_gradients() const;
  std::int64_t gradient_window(const RankPrice& rank) const;
  strategy::schedules::Shape shape() const;
  std::int64_t least_live(std::int64_t rank) const;
  // Seconds that a rank's wires are busy with its messages: the longer of near and far ones.
  double least_messages(std::size_t rank) const;
  void add_ranks();
  // Of bytes that ranks would send each other, those that codecs leave.
  std::int64_t sent(codecs::Use use, codecs::Wanted wanted, std::int64_t bytes) const;
  // What codecs remember of gradients.
  std::int64_t remembered(const RankPrice& rank) const;
  double collective(Wires::Kind kind, std::int64_t bytes) const;
  double by_blocks(Wires::Kind kind, std::int64_t bytes, std::int64_t layers) const;
  double over_further(const RankPrice& rank) const;
  double update(const RankPrice& rank) const;
  double gather(const RankPrice& rank) const;
  // Of the host's update, what goes on under the forward pass of the next step.
  double carried(const RankPrice& rank) const;
  template <typename Exposed>
  double least_end(const Exposed& exposed) const;

  const Problem& problem_;
  const strategy::Strategy& strategy_;
  std::int64_t micro_batches_;
  const Prices& prices_;
  std::vector<StagePrice> stages_;
  std::vector<RankPrice> ranks_;
  std::vector<Wires::Hop> hops_;
};

}  // namespace plimsoll::planner
