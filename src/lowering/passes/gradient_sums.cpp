#include "lowering/passes/gradient_sums.h"

#include <algorithm>

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::Site;
using graph::Turn;
using graph::ValueId;
using ops::CollectiveKind;

// The first bucket is small, so that communication starts early in the backward pass.
constexpr std::int64_t kFirstBucket = 1'000'000;

// Buckets that are reduced while the passes go on: what one brought is added when so many later ones have left.
constexpr std::size_t kUnderWay = 3;

// Of parameters that two places of a pipeline have.
std::vector<bool> tied_parameters(const Graph& graph) {
  std::vector<bool> tied(graph.parameters.size(), false);
  for (const Node& node : graph.nodes) {
    for (std::size_t index = 0; index < tied.size() && node.phase == Phase::join; ++index)
      tied[index] = tied[index] || node.inputs[0] == graph.parameters[index].gradient;
  }
  return tied;
}

}  // namespace

GradientSums::GradientSums(graph::Rewrite& rewrite, const Settings& settings, std::vector<ParameterSplit>& splits)
    : rewrite_(rewrite),
      old_(rewrite.from()),
      new_(rewrite.to()),
      settings_(settings),
      splits_(splits),
      build_(rewrite, settings.may_skip),
      tied_(tied_parameters(rewrite.from())) {}

void GradientSums::note(std::size_t parameter, std::int64_t bytes) {
  ready_.push_back(parameter);
  ready_bytes_ += bytes;
}

bool GradientSums::bucket_is_full() const {
  const std::int64_t bucket = settings_.strategy.bucket.count;
  return !ready_.empty() && ready_bytes_ >= (first_bucket_ ? std::min(kFirstBucket, bucket) : bucket);
}

void GradientSums::reduce_ready(const Site& site) {
  std::vector<std::size_t> whole;
  std::vector<std::size_t> split;
  std::vector<std::size_t> own;
  for (std::size_t parameter : ready_) {
    const bool alone = !settings_.axes.several() || settings_.axes.own(old_.parameters[parameter]);
    (splits_[parameter].split ? split : alone ? own : whole).push_back(parameter);
  }
  if (!own.empty()) sum_whole(own, false, site);
  if (!whole.empty()) sum_whole(whole, true, site);
  if (!split.empty()) sum_to_shards(split, site);
  ready_.clear();
  ready_bytes_ = 0;
  first_bucket_ = false;
}

void GradientSums::finish(const Site& site) {
  if (!ready_.empty()) reduce_ready(site);
  while (!under_way_.empty()) go_on(site);
}

// ---- buckets that leave

void GradientSums::sum_whole(const std::vector<std::size_t>& all, bool over_data, const Site& site) {
  std::vector<std::size_t> parameters = all;
  if (over_data) {
    const std::vector<std::size_t> coded = take_coded(parameters, codecs::Wanted::sum);
    std::vector<ValueId> given;
    for (std::size_t parameter : coded) given.push_back(new_gradient(parameter));
    if (!coded.empty()) send_coded(coded, given, true, site);
    if (parameters.empty()) return;
  }
  std::vector<ValueId> values;
  for (std::size_t parameter : parameters) values.push_back(new_gradient(parameter));
  const Site here{site.block, site.phase, turn()};
  if (over_data && settings_.strategy.reduce == strategy::Reduce::main) {
    values = rewrite_.make(settings_.axes.over_all(CollectiveKind::reduce, values.size()), values, here, "grad.main");
    values = rewrite_.make(settings_.axes.over_all(CollectiveKind::broadcast, values.size()), values, here, "grad.all");
  } else if (over_data) {
    values = rewrite_.make(settings_.axes.over_all(CollectiveKind::all_reduce, values.size()), values, here, "grad.sum");
  }
  keep(parameters, summed(parameters, values, site));
}

std::vector<ValueId> GradientSums::flattened(const std::vector<std::size_t>& parameters, const Site& site) {
  const Site here{site.block, site.phase, turn()};
  std::vector<ValueId> flat;
  for (std::size_t parameter : parameters) {
    const ParameterSplit& split = splits_[parameter];
    const std::string name = name_of(parameter) + ".flat";
    ValueId value = rewrite_.make_one(ops::View{.shape = {split.padded}}, {new_gradient(parameter)}, here, name);
    if (split.padded != split.elements) value = rewrite_.make_one(ops::Pad{.valid = split.elements}, {value}, here, name);
    flat.push_back(value);
  }
  return flat;
}

void GradientSums::sum_to_shards(const std::vector<std::size_t>& all, const Site& site) {
  std::vector<std::size_t> parameters = all;
  const std::vector<std::size_t> coded = take_coded(parameters, codecs::Wanted::shard);
  if (!coded.empty()) send_coded(coded, flattened(coded, site), false, site);
  if (parameters.empty()) return;
  const Site here{site.block, site.phase, turn()};
  const std::vector<ValueId> flat = flattened(parameters, site);
  const std::vector<ValueId> shards =
      rewrite_.make(settings_.axes.over_shards(CollectiveKind::reduce_scatter, flat.size(), !reduces_each()), flat, here, "grad.shard");
  for (std::size_t index = 0; index < shards.size(); ++index) new_.values[shards[index]].name = name_of(parameters[index]) + ".shard";
  leave({.parameters = parameters, .flight = {.values = shards}}, site);
}

std::vector<std::size_t> GradientSums::take_coded(std::vector<std::size_t>& parameters, codecs::Wanted wanted) const {
  const codecs::Choice& choice = settings_.strategy.communication.gradients;
  std::vector<std::size_t> coded;
  if (!choice.any()) return coded;
  std::erase_if(parameters, [&](std::size_t parameter) {
    const ParameterSplit& split = splits_[parameter];
    const std::int64_t elements = wanted == codecs::Wanted::shard ? split.padded : split.elements;
    const base::DType dtype = new_.values[new_gradient(parameter)].type.dtype;
    const codecs::Ask ask{.choice = choice, .wanted = wanted, .type = {dtype, base::Shape{elements}}, .members = settings_.axes.members()};
    // Both places of a tied weight would have to remember theirs under one name.
    const bool takes = why_exact(ask).empty() && !(tied_[parameter] && remembers(choice));
    if (takes) coded.push_back(parameter);
    return takes;
  });
  return coded;
}

void GradientSums::send_coded(const std::vector<std::size_t>& parameters, const std::vector<ValueId>& values, bool whole,
                              const Site& site) {
  const DataAxes& axes = settings_.axes;
  codecs::Task task{.wanted = whole ? codecs::Wanted::sum : codecs::Wanted::shard,
                    .plain = whole ? axes.over_all(CollectiveKind::all_reduce, values.size())
                                   : axes.over_shards(CollectiveKind::reduce_scatter, values.size(), !reduces_each()),
                    .site = {site.block, site.phase, turn()},
                    .choice = settings_.strategy.communication.gradients};
  for (std::size_t index = 0; index < values.size(); ++index) {
    const graph::Parameter& parameter = old_.parameters[parameters[index]];
    const base::TensorType& type = new_.values[new_gradient(parameters[index])].type;
    const std::int64_t shard = splits_[parameters[index]].padded / axes.members();
    const bool keeps = remembers(task.choice);
    task.operands.push_back({.value = values[index],
                             .name = name_of(parameters[index]) + (whole ? ".sum" : ".shard"),
                             .type = whole ? type : base::TensorType{type.dtype, base::Shape{shard}},
                             .whole = type.shape,
                             .like = keeps ? rewrite_.now(parameter.weight) : ValueId{},
                             .shard = shard});
  }
  Bucket bucket{.parameters = parameters, .task = std::move(task), .whole = whole};
  bucket.flight = bucket.task.choice.codec->emit(build_, bucket.task);
  leave(std::move(bucket), site);
}

// ---- buckets under way

void GradientSums::leave(Bucket bucket, const Site& site) {
  under_way_.push_back(std::move(bucket));
  const bool waits = accumulates_shards() ||
                     std::any_of(under_way_.begin(), under_way_.end(), [](const Bucket& one) { return one.flight.next != nullptr; });
  while (under_way_.size() > (waits ? kUnderWay : 0)) go_on(site);
}

// With the oldest bucket: its next step, or what came of it.
void GradientSums::go_on(const Site& site) {
  Bucket bucket = std::move(under_way_.front());
  under_way_.pop_front();
  if (bucket.flight.next == nullptr) return arrive(bucket, site);
  bucket.task.site = {site.block, site.phase, turn()};
  bucket.flight = bucket.flight.next(build_, bucket.task, bucket.flight.values);
  if (bucket.flight.next == nullptr) return arrive(bucket, site);
  under_way_.push_back(std::move(bucket));
}

void GradientSums::arrive(const Bucket& bucket, const Site& site) {
  const std::vector<ValueId>& came = bucket.flight.values;
  // What was decoded for the whole step lies where the gradient was, if it is whole.
  for (std::size_t index = 0; index < came.size() && !bucket.task.operands.empty() && !reduces_each(); ++index) {
    graph::Value& value = new_.values[came[index]];
    value.all_micro_batches = true;
    if (bucket.whole && bucket.flight.values[index] != bucket.task.operands[index].value)
      value.in_memory_of = bucket.task.operands[index].value;
  }
  std::vector<ValueId> values = summed(bucket.parameters, came, site);
  if (!bucket.whole) values = over_groups(bucket.parameters, std::move(values), site);
  keep(bucket.parameters, values);
}

// Groups of a hybrid have the sums of their own members.
std::vector<ValueId> GradientSums::over_groups(const std::vector<std::size_t>& parameters, std::vector<ValueId> values, const Site& site) {
  if (!settings_.axes.hybrid()) return values;
  const Site here{site.block, site.phase, Turn::last};
  values = rewrite_.make(settings_.axes.over_groups(CollectiveKind::all_reduce, values.size()), values, here, "grad.groups");
  for (std::size_t index = 0; index < values.size(); ++index) new_.values[values[index]].name = name_of(parameters[index]) + ".all";
  return values;
}

// Where every micro-batch reduces, sums over micro-batches are made of what was reduced; else whole gradients add up in
// place before they are.
std::vector<ValueId> GradientSums::summed(const std::vector<std::size_t>& parameters, std::vector<ValueId> reduced, const Site& site) {
  for (std::size_t index = 0; index < parameters.size() && accumulates_shards(); ++index)
    reduced[index] =
        rewrite_.make_one(ops::Accumulate{}, {reduced[index]}, {site.block, site.phase, Turn::each}, name_of(parameters[index]) + ".sum");
  settings_.axes.sum_over_further(rewrite_, parameters, reduced, {site.block, site.phase, Turn::last});
  return reduced;
}

void GradientSums::keep(const std::vector<std::size_t>& parameters, const std::vector<ValueId>& values) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    splits_[parameters[index]].gradient = values[index];
    kept_[parameters[index]] = reduces_each() ? values[index] : new_gradient(parameters[index]);
  }
}

}  // namespace plimsoll::lowering
