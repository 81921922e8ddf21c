// What becomes of gradients between the rank that made them and the updates that read them: buckets that are summed whole or to shards, by
// a codec where there is one (codecs/codec.h), and added up over the micro-batches.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "codecs/builder.h"
#include "lowering/passes/data_axes.h"

namespace plimsoll::lowering {

// A parameter of the old graph and what became of it.
struct ParameterSplit {
  bool split = false;         // over the ranks; else whole on each
  std::int64_t elements = 0;  // of the whole tensor (or of the slice this rank has of it)
  std::int64_t padded = 0;    // a multiple of members * kSumBlock
  graph::ValueId gradient{};  // new: as the update reads it
};

class GradientSums {
 public:
  struct Settings {
    const strategy::Strategy& strategy;
    const DataAxes& axes;
    std::int64_t zero = 0;           // 0 where there is nobody to share with
    std::int32_t micro_batches = 1;  // of a rank
    bool may_skip = false;           // a verdict may say that a step changes nothing
  };
  GradientSums(graph::Rewrite& rewrite, const Settings& settings, std::vector<ParameterSplit>& splits);

  // Gradients are reduced in every micro-batch and only shards are kept, instead of whole ones until the last.
  bool reduces_each() const { return settings_.zero >= 2 && (settings_.micro_batches == 1 || !settings_.strategy.keep_grads); }

  // A parameter's gradient is there, of so many bytes.
  void note(std::size_t parameter, std::int64_t bytes);
  // What is there leaves while the rest of the block goes on.
  bool bucket_is_full() const;
  bool idle() const { return ready_.empty() && under_way_.empty(); }
  void reduce_ready(const graph::Site& site);
  // Reduces what is left, and waits for all that is under way.
  void finish(const graph::Site& site);

  // Behind the verdict: what codecs remember is as it was where the step is skipped.
  void undo_where_skipped(graph::ValueId scalars) { build_.undo_where_skipped(scalars); }

  // The gradients as parameters of the new graph have them.
  const std::map<std::size_t, graph::ValueId>& kept() const { return kept_; }

 private:
  // Gradients that left together. What a reduction leaves of each is added to what there is of earlier micro-batches.
  struct Bucket {
    std::vector<std::size_t> parameters{};
    codecs::Task task{};
    codecs::Flight flight{};
    bool whole = false;
  };

  bool accumulates_shards() const { return reduces_each() && settings_.micro_batches > 1; }
  graph::Turn turn() const { return reduces_each() ? graph::Turn::each : graph::Turn::last; }
  std::string name_of(std::size_t parameter) const { return "grad." + old_.parameters[parameter].name; }
  graph::ValueId new_gradient(std::size_t parameter) const { return rewrite_.now(old_.parameters[parameter].gradient); }

  void sum_whole(const std::vector<std::size_t>& parameters, bool over_data, const graph::Site& site);
  void sum_to_shards(const std::vector<std::size_t>& parameters, const graph::Site& site);
  std::vector<graph::ValueId> flattened(const std::vector<std::size_t>& parameters, const graph::Site& site);

  // Those that the codec takes, out of the list.
  std::vector<std::size_t> take_coded(std::vector<std::size_t>& parameters, codecs::Wanted wanted) const;
  void send_coded(const std::vector<std::size_t>& parameters, const std::vector<graph::ValueId>& values, bool whole,
                  const graph::Site& site);
  void leave(Bucket bucket, const graph::Site& site);
  void go_on(const graph::Site& site);
  void arrive(const Bucket& bucket, const graph::Site& site);

  std::vector<graph::ValueId> over_groups(const std::vector<std::size_t>& parameters, std::vector<graph::ValueId> values,
                                          const graph::Site& site);
  std::vector<graph::ValueId> summed(const std::vector<std::size_t>& parameters, std::vector<graph::ValueId> reduced,
                                     const graph::Site& site);
  void keep(const std::vector<std::size_t>& parameters, const std::vector<graph::ValueId>& values);

  graph::Rewrite& rewrite_;
  const graph::Graph& old_;
  graph::Graph& new_;
  Settings settings_;
  std::vector<ParameterSplit>& splits_;
  codecs::Builder build_;
  std::vector<bool> tied_;  // by parameter: another place of the pipe axis has a part of its gradient
  std::vector<std::size_t> ready_;
  std::int64_t ready_bytes_ = 0;
  bool first_bucket_ = true;
  std::deque<Bucket> under_way_;
  std::map<std::size_t, graph::ValueId> kept_;
};

}  // namespace plimsoll::lowering
