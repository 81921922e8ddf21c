// What a rank holds: what stays, and what comes and goes as its passes go on.
#include <algorithm>

#include "planner/sheet.h"

namespace plimsoll::planner {

Sheet::Gradients Sheet::gradients(const RankPrice& rank) const {
  const bool scattered = strategy_.zero >= 2 && !strategy_.keep_grads && strategy_.shards() > 1;
  const bool leave = strategy_.offload.gradients.anything();
  const std::int64_t waiting = waiting_gradients();
  Gradients found{
      .stay = rank.gradients, .pass = 0, .first = rank.has_head ? prices_.head.gradients + waiting : prices_.layer.gradients, .middle = 0};
  if (leave || scattered) {
    found.stay = leave ? 0 : rank.gradients / strategy_.shards();
    found.pass = gradient_window(rank);
    // Whole gradients wait until a bucket of them leaves.
    const bool whole = scattered || (strategy_.data > 1 && strategy_.zero == 0);
    if (whole) found.pass = std::max(found.pass, std::min(rank.gradients, strategy_.bucket.count));
    // The last of a micro-batch go while the next one begins.
    const std::int64_t last = 2 * prices_.layer.gradients + rank.largest_end_gradients;
    if (scattered && micro_batches_ > 1) found.first = std::max(found.first, std::min(found.pass, last));
  }
  found.pass = std::min(found.pass, rank.gradients - std::min(found.stay, rank.gradients));
  found.first = std::min(found.first, found.stay + found.pass);
  found.middle = found.pass;
  if (!leave || strategy_.data > 1) return found;
  // Where they are added to those of the micro-batches before, these come here too.
  const std::int64_t each = micro_batches_ > 1 && tier_of(strategy_.offload.gradients) == Tier::host ? 2 : 1;
  const std::int64_t last = prices_.layer.gradients + each * rank.largest_end_gradients;
  // What is made again goes between two layers' gradients, so that fewer are there.
  const std::int64_t layers = strategy_.recompute == strategy::Recompute::none ? 2 * each : 2;
  found.middle = std::min(rank.gradients, layers * prices_.layer.gradients + waiting);
  if (strategy_.tile.count > 0) {
    found.middle = std::min(found.middle, found.pass);
  } else {
    found.pass = std::max(found.middle, rank.has_table ? last : 0);
  }
  return found;
}

// Where weights come and go, those of the blocks that are computed and of the next ones are there. At the beginning of the backward pass
// that is the head, at its end the first layer alone, or what the next micro-batch begins with.
Sheet::Weights Sheet::weights(const RankPrice& rank) const {
  const strategy::Offload& offload = strategy_.offload;
  const std::int64_t shards = strategy_.shards();
  const bool gathered = strategy_.zero == 3 && shards > 1;
  const bool away = offload.params.anything();
  const bool moves = away || gathered;
  if (!moves) return {rank.weights, rank.weights, rank.weights, rank.weights};
  const std::int64_t ahead = std::max<std::int64_t>(1, strategy_.prefetch);
  const std::int64_t layer = prices_.layer.weights;
  const std::int64_t most = std::min(rank.weights, window(ahead + 1, rank.layers, layer, rank.largest_end_weights, rank.end_weights));
  // Shards of what is here, or of everything.
  const std::int64_t parts = !gathered ? 0 : away ? most / shards : rank.weights / shards;
  if (gathered && strategy_.keep_params) {
    const std::int64_t all = parts + rank.weights;
    return {all, all, all, all};
  }
  const std::int64_t first = rank.has_head ? std::max(prices_.head.weights, prices_.tied_weights) : layer;
  const auto blocks = [&](std::int64_t count) { return std::min(count, rank.layers) * layer; };
  return {.forward = parts + most,
          .start = parts + std::min(most, first + blocks(ahead)),
          .middle = parts + std::min(most, blocks(ahead + 1)),
          .end = parts + (micro_batches_ > 1 && strategy_.pipe == 1 ? most : std::min(most, blocks(1)))};
}

Memory Sheet::memory(const RankPrice& rank, const std::vector<Moment>& moments) const {
  const std::int64_t shards = strategy_.shards();
  Memory memory;
  memory.optimizer = Bytes{strategy_.zero >= 1 ? rank.optimizer / shards : rank.optimizer};
  memory.working = Bytes{rank.temporary + remembered(rank)};
  const Gradients gradients = this->gradients(rank);
  const Weights weights = this->weights(rank);
  const std::int64_t away = sent_away(rank);
  const auto at = [&](std::int64_t kept, double begun, std::int64_t passing, std::int64_t here) {
    const std::int64_t held = std::max<std::int64_t>(0, kept - away);
    const std::int64_t before = static_cast<std::int64_t>(begun * as_double(gradients.stay));
    const std::int64_t made = std::min(before + passing, gradients.stay + gradients.pass);
    if (held + made + here <= (memory.activations + memory.gradients + memory.weights).count) return;
    memory.activations = Bytes{held};
    memory.gradients = Bytes{made};
    memory.weights = Bytes{here};
  };
  for (const Moment& moment : moments) {
    if (!moment.is_backward) {
      at(moment.kept, moment.begun, 0, weights.forward);
      continue;
    }
    at(moment.kept, moment.begun, gradients.first, weights.start);
    // Where as much of them has come as is there at once, and at the end.
    const double part = std::min(1.0, as_double(gradients.middle) / std::max(1.0, as_double(rank.gradients)));
    const auto left = [&](double done) { return moment.kept - static_cast<std::int64_t>(done * as_double(moment.leaves)); };
    at(left(part), moment.begun + part * (moment.then - moment.begun), gradients.middle, weights.middle);
    at(left(1.0), moment.then, gradients.pass, weights.end);
  }
  put_away(memory, rank);
  return memory;
}

// Of what leaves behind the forward pass, the last blocks stay, since they are wanted again before they could have gone and come.
std::int64_t Sheet::leaving_layers(std::int64_t layers) const {
  const Tier tier = tier_of(strategy_.offload.activations);
  if (tier == Tier::device || strategy_.recompute == strategy::Recompute::optimal) return 0;
  const std::int64_t hops = tier == Tier::disk ? 2 : 1;
  // A layer is two stretches of a rank's order, or three where it is made again; what is wanted within twice the way stays.
  const std::int64_t stretches = strategy_.recompute == strategy::Recompute::none ? 2 : 3;
  const std::int64_t near = (2 * hops * strategy_.prefetch + stretches - 1) / stretches;
  return std::max<std::int64_t>(0, layers - near);
}

std::int64_t Sheet::leaving_bytes() const {
  const BlockPrice& layer = prices_.layer;
  if (strategy_.recompute == strategy::Recompute::full) return layer.full.bytes;
  return strategy_.recompute == strategy::Recompute::selective ? layer.selective.bytes : layer.everything.bytes;
}

std::int64_t Sheet::window(std::int64_t blocks, std::int64_t layers, std::int64_t of_layer, std::int64_t of_end,
                           std::int64_t of_ends) const {
  const std::int64_t between = std::min(blocks, layers) * of_layer;
  const std::int64_t at_end = std::min(blocks - 1, layers) * of_layer + of_end;
  const std::int64_t whole = layers + 1 < blocks ? layers * of_layer + of_ends : std::max(between, at_end);
  if (strategy_.tile.count == 0) return whole;
  // A tile is so many bytes of weights; its gradient may be wider.
  const double wider = as_double(of_layer) / std::max(1.0, as_double(prices_.layer.weights));
  return std::min(whole, static_cast<std::int64_t>(as_double(blocks * strategy_.tile.count) * wider));
}

// What a head that shares its weight with the embedding gives waits for what the embedding adds to it: on the device, unless gradients
// leave and no other stage adds to this one.
std::int64_t Sheet::waiting_gradients() const {
  return strategy_.offload.gradients.anything() && strategy_.pipe == 1 ? 0 : prices_.tied_gradients;
}

// Gradients of the ends wait for the update of their blocks longer than weights are needed for.
std::int64_t Sheet::gradient_window(const RankPrice& rank) const {
  const std::int64_t layer = prices_.layer.gradients;
  const bool away = prices_.tied_gradients > 0 && waiting_gradients() == 0;
  const std::int64_t whole = away ? std::max(2 * layer, layer + rank.end_gradients) : 2 * layer + rank.end_gradients;
  if (strategy_.tile.count == 0) return std::min(whole, rank.gradients);
  const std::int64_t tiles = window(3, rank.layers, layer, rank.largest_end_gradients, rank.end_gradients);
  return std::min({whole, rank.gradients, tiles + waiting_gradients()});
}

// Of what a rank's micro-batches keep, what is elsewhere: one layer's is on its way.
std::int64_t Sheet::sent_away(const RankPrice& rank) const {
  return std::max<std::int64_t>(0, leaving_layers(rank.layers) - 1) * leaving_bytes();
}

// What lives in slower tiers leaves a window on the device: blocks that are computed, come or go.
void Sheet::put_away(Memory& memory, const RankPrice& rank) const {
  const strategy::Offload& offload = strategy_.offload;
  const auto keep = [&](const strategy::TierShare& share, std::int64_t bytes) {
    (share.disk > 0.0 ? memory.disk : memory.host) += Bytes{bytes};
  };
  if (offload.params.anything()) keep(offload.params, strategy_.zero == 3 ? rank.weights / strategy_.shards() : rank.weights);
  if (offload.gradients.anything()) {
    const bool scattered = strategy_.zero >= 2 && !strategy_.keep_grads;
    keep(offload.gradients, scattered ? rank.gradients / strategy_.shards() : rank.gradients);
  }
  keep(offload.activations, sent_away(rank));
  if (offload.optimizer.anything()) {
    const strategy::TierShare& share = offload.optimizer;
    const auto part = [&](double of) { return Bytes{static_cast<std::int64_t>(of * as_double(memory.optimizer.count))}; };
    memory.host += part(share.host);
    memory.disk += part(share.disk);
    memory.optimizer = part(std::max(0.0, 1.0 - share.host - share.disk));
  }
  if (rank.has_table) memory.disk += Bytes{prices_.table};
  // What is on its way to and from a disk passes through the host's memory.
  constexpr std::int64_t kUnderWay = 6;
  if (memory.disk.count > 0) memory.host += Bytes{std::min(memory.disk.count, kUnderWay * strategy_.bucket.count)};
}

}  // namespace plimsoll::planner
