#include "planner/sheet.h"

#include "codecs/table.h"

namespace plimsoll::planner {

namespace schedules = strategy::schedules;

Sheet::Sheet(const Problem& problem, const Choice& choice, PriceTable& prices, bool fits)
    : problem_(problem),
      strategy_(choice.strategy),
      micro_batches_(choice.micro_batches(problem)),
      prices_(prices.of(problem, choice)),
      stages_(prices.stages_of(problem, choice)) {
  if (splits_backward()) {
    for (StagePrice& stage : stages_) {
      stage.backward_weight += stage.gathered_again;
      stage.tensor_seconds += stage.gathered_again;
    }
  }
  if (fitted_stages() && !fits) keep_least();
  wait_for_what_moves();
  add_ranks();
  if (fitted_stages() && fits) keep_what_fits();
  for (std::int64_t place = 0; strategy_.pipe > 1 && place < strategy_.pipe; ++place)
    hops_.push_back(problem.wires.message(sent(codecs::Use::activations, codecs::Wanted::message, prices_.layer.output),
                                          strategy_.stride(ops::Axis::pipe), strategy_.pipe, place));
}

namespace {

// A way to keep less of a layer: bytes and seconds more than where everything is kept.
struct Step {
  std::int64_t saved = 0;
  double again = 0.0;
  double flops = 0.0;
  std::int64_t made = 0;  // bytes that are there again while the layer's backward pass runs

  double price() const { return again / as_double(saved); }
};

}  // namespace

// Layers are alike, so what costs least for a byte is done in as many of them as it takes: first one way, then, of those layers, the other.
void Sheet::keep_within(StagePrice& stage, std::int64_t bytes) const {
  const BlockPrice& layer = prices_.layer;
  const auto step_to = [&](const Keeping& from, const Keeping& to) {
    return Step{.saved = from.bytes - to.bytes,
                .again = to.again - from.again,
                .flops = to.flops - from.flops,
                .made = layer.everything.bytes - to.bytes};
  };
  std::vector<Step> steps;
  const Step half = step_to(layer.everything, layer.selective);
  const Step whole = step_to(layer.everything, layer.full);
  if (half.saved > 0 && half.saved < whole.saved && half.price() <= whole.price()) {
    steps = {half, step_to(layer.selective, layer.full)};
  } else if (whole.saved > 0) {
    steps = {whole};
  }
  for (const Step& step : steps) {
    if (stage.kept <= bytes) return;
    const std::int64_t layers = std::min(stage.layers, (stage.kept - bytes + step.saved - 1) / step.saved);
    stage.kept -= layers * step.saved;
    stage.again += as_double(layers) * step.again;
    stage.backward_input += as_double(layers) * step.again;
    stage.flops += as_double(layers) * step.flops;
    stage.temporary = std::max({stage.temporary, layer.temporary_forward, layer.temporary_backward + step.made});
  }
}

void Sheet::keep_least() {
  for (StagePrice& stage : stages_) {
    StagePrice least = stage;
    keep_within(least, 0);
    stage.kept = least.kept;
  }
}

void Sheet::keep_what_fits() {
  for (std::size_t index = 0; index < stages_.size(); ++index) {
    const std::size_t rank = index % ranks_.size();
    StagePrice& stage = stages_[index];
    const std::int64_t live = least_live(static_cast<std::int64_t>(rank));
    // What is made again is there once, beside what all micro-batches keep: the least that can be is tried first.
    for (bool again : {false, true}) {
      StagePrice tried = stage;
      const std::int64_t beside =
          again ? std::max(prices_.layer.temporary_forward,
                           prices_.layer.temporary_backward + prices_.layer.everything.bytes - prices_.layer.full.bytes)
                : 0;
      RankPrice held = ranks_[rank];
      held.temporary = std::max(held.temporary, beside);
      const std::int64_t left = problem_.device.count - memory(held, {{.begun = 1.0, .then = 1.0, .is_backward = true}}).device().count;
      keep_within(tried, left / live);
      if (again || tried.temporary <= held.temporary) {
        stage = tried;
        break;
      }
    }
  }
  add_ranks();
}

// With weights or gradients in shards, or weights, gradients or activations in slower tiers, a stage's passes take as long as what moves
// beside them, if that is longer. Ranks talk on one wire; what comes from other tiers and what goes there are two more.
void Sheet::wait_for_what_moves() {
  const strategy::Offload& offload = strategy_.offload;
  // A head in tiles goes over them twice: once for what its softmax divides by, then for the gradients, a third more arithmetic.
  const BlockPrice& head = prices_.head;
  const bool twice = strategy_.tile.count > 0 && std::max(head.weights, prices_.tied_weights) > strategy_.tile.count;
  if (twice) stages_.back().backward_input += (head.forward + head.backward_input + head.backward_weight) / 3.0;
  const std::int64_t shards = strategy_.shards();
  const bool gathers = shards > 1 && strategy_.zero == 3 && !(strategy_.keep_params && micro_batches_ > 1);
  const bool scatters = shards > 1 && strategy_.zero >= 2 && !strategy_.keep_grads && micro_batches_ > 1;
  const auto copied = [&](const strategy::TierShare& share, std::int64_t bytes) {
    return share.anything() && bytes > 0 ? problem_.wires.copy(bytes, tier_of(share)) : 0.0;
  };
  for (StagePrice& stage : stages_) {
    const double gather = gathers ? by_blocks(Wires::Kind::all_gather, stage.weights, stage.layers) : 0.0;
    const double scatter = scatters ? by_blocks(Wires::Kind::reduce_scatter, stage.gradients, stage.layers) : 0.0;
    const double fetch = copied(offload.params, strategy_.zero == 3 ? stage.weights / shards : stage.weights);
    const double leave = copied(offload.activations, leaving_layers(stage.layers) * leaving_bytes());
    const double sums = copied(offload.gradients, scatters ? stage.gradients / shards : stage.gradients);
    // Nothing hides the gather of the block that a micro-batch begins with, and the reduction of the same one, where it ends.
    const BlockPrice& outermost = stage.first ? prices_.embedding : prices_.layer;
    const double lead = gathers ? collective(Wires::Kind::all_gather, outermost.weights) : 0.0;
    const double tail = scatters ? collective(Wires::Kind::reduce_scatter, outermost.gradients) : 0.0;
    // What is said beside the passes makes them longer.
    const auto slowed = [&](double said, double passes) { return problem_.wires.slowed * std::min(said, passes); };
    stage.forward += slowed(gather - lead, stage.forward);
    stage.backward_input += slowed(gather + scatter - tail, stage.backward());
    const double before = lead + std::max(0.0, std::max({gather - lead, fetch, leave}) - stage.forward);
    const double come = fetch + leave + (micro_batches_ > 1 ? sums : 0.0);
    const double behind = tail + std::max(0.0, std::max({gather + scatter - tail, come, sums}) - stage.backward());
    stage.forward += before;
    stage.backward_input += behind;
    stage.wait = before + behind;
  }
}

void Sheet::add_ranks() {
  ranks_.assign(static_cast<std::size_t>(strategy_.pipe), {});
  for (std::size_t index = 0; index < stages_.size(); ++index) {
    const StagePrice& stage = stages_[index];
    RankPrice& rank = ranks_[index % ranks_.size()];
    rank.work += stage.work();
    rank.forward += stage.forward;
    rank.backward += stage.backward();
    rank.kept += stage.kept;
    const std::int64_t least = splits_backward() ? std::min(stage.kept, stage.kept_for_weights) : stage.kept;
    rank.kept_least = index < ranks_.size() ? least : std::min(rank.kept_least, least);
    rank.temporary = std::max(rank.temporary, stage.temporary);
    rank.layers += stage.layers;
    rank.weights += stage.weights;
    rank.gradients += stage.gradients;
    rank.optimizer += stage.optimizer;
    rank.update += stage.update;
    rank.end_weights += stage.weights - stage.layers * prices_.layer.weights;
    rank.end_gradients += stage.gradients - stage.layers * prices_.layer.gradients;
    const auto ends = [&](std::int64_t of_stage, std::int64_t of_layer, std::int64_t of_table) {
      const std::int64_t both = of_stage - stage.layers * of_layer;
      return stage.first && stage.last ? std::max(of_table, both - of_table) : both;
    };
    rank.largest_end_weights = std::max(rank.largest_end_weights, ends(stage.weights, prices_.layer.weights, prices_.embedding.weights));
    rank.largest_end_gradients =
        std::max(rank.largest_end_gradients, ends(stage.gradients, prices_.layer.gradients, prices_.embedding.gradients));
    rank.has_table = rank.has_table || stage.first;
    rank.has_head = rank.has_head || stage.last;
    rank.tied = rank.tied || (strategy_.pipe > 1 && prices_.tied_gradients > 0 && (stage.first || stage.last));
  }
}

std::int64_t Sheet::sent(codecs::Use use, codecs::Wanted wanted, std::int64_t bytes) const {
  const codecs::Choice& choice = choice_for(strategy_.communication, use);
  if (!choice.any()) return bytes;
  const base::DType type = use == codecs::Use::gradients ? prices_.gradient_type
                           : use == codecs::Use::weights ? prices_.weight_type
                                                         : prices_.output_type;
  const std::int64_t elements = bytes / base::size_of(type);
  const std::int64_t columns = std::max<std::int64_t>(1, prices_.output_columns);
  const base::Shape shape = wanted == codecs::Wanted::message ? base::Shape{elements / columns, columns} : base::Shape{elements};
  const codecs::Ask ask{
      .choice = choice, .wanted = wanted, .type = {type, shape}, .members = std::max<std::int64_t>(2, strategy_.shards())};
  const std::int64_t plain = codecs::plain_bytes(ask);
  return plain == 0 ? bytes : static_cast<std::int64_t>(as_double(bytes) * as_double(codecs::wire_bytes(ask)) / as_double(plain));
}

std::int64_t Sheet::remembered(const RankPrice& rank) const {
  if (strategy_.data == 1 || !codecs::remembers(strategy_.communication.gradients)) return 0;
  return rank.gradients / base::size_of(prices_.gradient_type) * base::size_of(base::DType::f32);
}

double Sheet::collective(Wires::Kind kind, std::int64_t bytes) const {
  if (kind == Wires::Kind::reduce_scatter) bytes = sent(codecs::Use::gradients, codecs::Wanted::shard, bytes);
  if (kind == Wires::Kind::all_gather && strategy_.zero == 3) bytes = sent(codecs::Use::weights, codecs::Wanted::gather, bytes);
  return problem_.wires.collective(kind, bytes, strategy_.shards(), strategy_.stride(ops::Axis::data));
}

// What moves block by block costs its latency as often.
double Sheet::by_blocks(Wires::Kind kind, std::int64_t bytes, std::int64_t layers) const {
  const std::int64_t blocks = layers + 1;
  return as_double(blocks) * collective(kind, bytes / blocks);
}

// Sums over axes beside data, of what is complete over that: once a step, with nothing left to hide them.
double Sheet::over_further(const RankPrice& rank) const {
  double seconds = 0.0;
  for (const auto& [row, degree] : strategy_.more) {
    if (!row.sums_gradients || degree == 1) continue;
    const std::int64_t bytes = strategy_.data > 1 && strategy_.zero > 0 ? rank.gradients / strategy_.shards() : rank.gradients;
    seconds += problem_.wires.collective(Wires::Kind::all_reduce, bytes, degree, strategy_.stride(row.axis));
  }
  return seconds;
}

// Seconds of a rank's gradients on the wires that its last backward pass does not hide. They leave block by block, so of n equal blocks
// that take b to compute and c to reduce, max(c, nc - (n-1)b) is left at the end.
double Sheet::exposed_reduction(const RankPrice& rank) const {
  double tied = 0.0;
  if (rank.tied) {
    const std::int64_t apart = strategy_.stride(ops::Axis::pipe) * (strategy_.pipe - 1);
    tied = problem_.wires.collective(Wires::Kind::all_reduce, prices_.tied_gradients, 2, apart);
  }
  const double further = over_further(rank);
  if (strategy_.data == 1) return tied + further;
  const bool done_before = strategy_.zero >= 2 && !strategy_.keep_grads && micro_batches_ > 1;
  double all = 0.0;
  if (strategy_.zero == 0) {
    const std::int64_t blocks = rank.layers + 1;
    all = as_double(blocks) * problem_.wires.collective(Wires::Kind::all_reduce,
                                                        sent(codecs::Use::gradients, codecs::Wanted::sum, rank.gradients / blocks),
                                                        strategy_.data, strategy_.stride(ops::Axis::data));
  } else {
    if (!done_before) all = by_blocks(Wires::Kind::reduce_scatter, rank.gradients, rank.layers);
    const std::int64_t groups = strategy_.data / strategy_.shards();
    if (groups > 1) {
      all += problem_.wires.collective(Wires::Kind::all_reduce, rank.gradients / strategy_.shards(), groups,
                                       strategy_.stride(ops::Axis::data) * strategy_.shards());
    }
  }
  const double blocks = as_double(rank.layers + 1);
  const double each = all / blocks;
  const double exposed = std::max(each, all - (blocks - 1.0) * rank.backward / blocks);
  return tied + further + exposed + problem_.wires.slowed * (all - exposed);
}

// Behind the last gradient: the update, and where only shards of weights were updated, their gather.
double Sheet::update(const RankPrice& rank) const {
  const std::int64_t shards = strategy_.zero >= 1 ? strategy_.shards() : 1;
  const double here = rank.update / as_double(shards);
  const Tier tier = tier_of(strategy_.offload.optimizer);
  const double rows = rank.has_table && prices_.table_moved > 0 ? 2.0 * problem_.wires.copy(prices_.table_moved, Tier::disk) : 0.0;
  if (tier == Tier::device) return here + rows;
  // No host is faster than its device. From disk the states come and go back.
  const std::int64_t users = std::min(problem_.ranks, problem_.ranks_per_node);
  const double host = problem_.wires.host_update(rank.gradients / shards, rank.weights / shards, rank.optimizer / shards, users);
  const double states = tier == Tier::disk ? 2.0 * problem_.wires.copy(rank.optimizer / shards, Tier::disk) : 0.0;
  return rows + std::max({here, states, host - carried(rank)});
}

// Where lowering lets it (lowering/tiers.cpp), a weight is updated ahead of its first use in the next step: each block's but the first
// behind the passes of those before it.
double Sheet::carried(const RankPrice& rank) const {
  using strategy::CarryUpdate;
  const bool may = problem_.host_beside && tier_of(strategy_.offload.optimizer) == Tier::host && strategy_.offload.optimizer.disk == 0.0;
  if (!may || strategy_.carry_update == CarryUpdate::never) return 0.0;
  const double forward = rank.forward * as_double(rank.layers) / as_double(rank.layers + 1);
  if (strategy_.carry_update == CarryUpdate::always || strategy_.offload.gradients.anything()) return forward;
  // Gradients have to be gone before the last backward pass ends.
  const double leaves = problem_.wires.copy(rank.gradients / (strategy_.zero > 0 ? strategy_.shards() : 1), Tier::host);
  return leaves < rank.work ? forward : 0.0;
}
double Sheet::gather(const RankPrice& rank) const {
  if (strategy_.shards() == 1) return 0.0;
  const bool whole_again = strategy_.zero == 1 || strategy_.zero == 2 || (strategy_.zero == 3 && strategy_.keep_params);
  return whole_again ? by_blocks(Wires::Kind::all_gather, rank.weights, rank.layers) : 0.0;
}

std::int64_t Sheet::least_kept(std::size_t rank) const { return ranks_[rank].kept_least * least_live(static_cast<std::int64_t>(rank)); }

bool Sheet::surely_together(std::size_t rank) const {
  if (strategy_.pipe == 1) return micro_batches_ > 1;
  return schedules::find_kind(strategy_.schedule).is_steady(shape(), static_cast<std::int64_t>(rank));
}

std::vector<Moment> Sheet::least_moments(std::size_t rank) const {
  const std::int64_t kept = least_kept(rank);
  if (strategy_.pipe == 1) {
    std::vector<Moment> moments{{.begun = 0.0, .then = 1.0, .kept = kept, .leaves = kept, .is_backward = true}};
    if (micro_batches_ > 1) moments.push_back({.begun = 1.0, .then = 1.0, .kept = kept, .leaves = kept, .is_backward = true});
    return moments;
  }
  std::vector<Moment> moments{{.kept = kept}, {.begun = 0.0, .then = 1.0, .is_backward = true}};
  if (surely_together(rank)) moments.push_back({.begun = 1.0, .then = 1.0, .kept = kept});
  return moments;
}

schedules::Shape Sheet::shape() const { return {.ranks = strategy_.pipe, .micro_batches = micro_batches_, .chunks = strategy_.chunks}; }

// Micro-batches' worth of stages that a rank holds at least.
std::int64_t Sheet::least_live(std::int64_t rank) const {
  if (strategy_.pipe == 1) return 1;
  const schedules::Kind& kind = schedules::find_kind(strategy_.schedule);
  return kind.holds == nullptr ? 1 : kind.holds(shape(), rank);
}

double Sheet::least_messages(std::size_t rank) const {
  if (hops_.empty()) return 0.0;
  const Wires::Hop& next = hops_[rank];
  const Wires::Hop& before = hops_[(rank + hops_.size() - 1) % hops_.size()];
  double near = 0.0;
  double far = 0.0;
  for (std::size_t stage = rank; stage < stages_.size(); stage += ranks_.size()) {
    if (stage + 1 < stages_.size()) (next.far ? far : near) += next.seconds;
    if (stage > 0) (before.far ? far : near) += before.seconds;
  }
  return as_double(micro_batches_) * std::max(near, far);
}

// No rank ends before it has waited for its first input and done its work; where a backward pass is one piece, the stages before
// still have to do theirs after its last one.
template <typename Exposed>
double Sheet::least_end(const Exposed& exposed) const {
  const bool whole_backward = !splits_backward();
  double before = 0.0;
  double after = exposed(0);
  double most = 0.0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const double own = before + as_double(micro_batches_) * ranks_[rank].work;
    most = std::max(most, own + exposed(rank));
    if (whole_backward) most = std::max(most, own + after);
    most = std::max(most, least_messages(rank));
    before += stages_[rank].forward + (hops_.empty() ? 0.0 : hops_[rank].seconds);
    after += stages_[rank].backward() + (hops_.empty() ? 0.0 : hops_[rank].seconds);
  }
  return most;
}

double Sheet::least_seconds() const {
  return least_end([&](std::size_t rank) { return exposed_reduction(ranks_[rank]); });
}
double Sheet::least_passes() const {
  return least_end([](std::size_t) { return 0.0; });
}

// Behind the last reduction, which all ranks wait for.
double Sheet::most_update() const {
  double most = 0.0;
  for (const RankPrice& rank : ranks_) most = std::max(most, update(rank) + gather(rank));
  return most;
}

}  // namespace plimsoll::planner
