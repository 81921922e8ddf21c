#include "planner/space.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/finer.h"
#include "strategy/dimension.h"
#include "strategy/legality.h"
#include "strategy/schedules/table.h"

namespace plimsoll::planner {

namespace {

namespace schedules = strategy::schedules;
using strategy::EmbeddingRows;
using strategy::Recompute;
using strategy::StagePartition;
using strategy::Strategy;

constexpr std::int64_t kMostChunks = 8;
// Of a device, the part that a block of weights must exceed for tiles to be worth a look, and the part that one of them may have.
constexpr std::int64_t kWorthTiles = 8;
constexpr std::int64_t kTilesOfSearch = 16;

template <typename T>
std::vector<T> pinned_or(const std::optional<T>& pin, std::vector<T> open) {
  return pin ? std::vector<T>{*pin} : std::move(open);
}

template <typename T>
bool has(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    found.push_back(divisor);
    if (divisor * divisor != number) found.push_back(number / divisor);
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace {

using See = std::function<void(const Choice&)>;
// Goes through the answers to one question, for a choice that has answered those before.
using Question = std::function<void(const Choice&, const See&)>;

void ask(const std::vector<Question>& questions, std::size_t index, const Choice& choice, const See& see) {
  if (index == questions.size()) return see(choice);
  questions[index](choice, [&](const Choice& answered) { ask(questions, index + 1, answered, see); });
}

// A question whose answers are `values`, written to a field of the strategy; where it does not arise, the answer is `otherwise`.
template <typename T, typename Field>
Question about(Field Strategy::* field, const std::vector<T>& values, const std::function<bool(const Choice&)>& arises,
               const T& otherwise) {
  return [field, &values, arises, otherwise](const Choice& choice, const See& next) {
    Choice answered = choice;
    if (!arises(choice)) {
      answered.strategy.*field = static_cast<Field>(otherwise);
      return next(answered);
    }
    for (const T& value : values) {
      answered.strategy.*field = static_cast<Field>(value);
      next(answered);
    }
  };
}

bool fits_stages(std::int64_t pipe, std::string_view schedule) { return pipe == 1 || schedules::find_kind(schedule).fits_memory(); }

std::vector<std::string> searched_schedules() {
  std::vector<std::string> names;
  for (const schedules::Kind& kind : schedules::kinds()) {
    if (kind.searched) names.emplace_back(kind.name);
  }
  return names;
}

// Names of the schedules of which that is true, for messages.
std::string in_quotes(bool (*is_true)(const schedules::Kind& kind)) {
  std::vector<std::string> names;
  for (const schedules::Kind& kind : schedules::kinds()) {
    if (is_true(kind)) names.push_back(fmt::format("\"{}\"", kind.name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool fits_stages(const Strategy& strategy) { return fits_stages(strategy.pipe, strategy.schedule); }

// All of it there; where the user gave shares of it, these.
strategy::TierShare Space::share_of(Tier tier, const strategy::TierShare& given) {
  return given.anything() && tier == tier_of(given) ? given : all_in(tier);
}

void Space::visit_shapes(const Problem& problem, const See& see) const {
  const auto always = [](const Choice&) { return true; };
  const auto piped = [](const Choice& choice) { return choice.strategy.pipe > 1; };
  const auto split = [](const Choice& choice) { return choice.strategy.tensor > 1; };
  const Question degrees = [&](const Choice& choice, const See& next) {
    const std::int64_t others = choice.strategy.tensor * choice.strategy.pipe * choice.strategy.more_ranks();
    if (problem.ranks % others != 0 || choice.strategy.pipe > problem.most_stages()) return;
    Choice answered = choice;
    answered.strategy.data = problem.ranks / others;
    if (has(data, answered.strategy.data) && problem.global_batch % answered.strategy.batch_ranks() == 0) next(answered);
  };
  const Question micro_batch = [&](const Choice& choice, const See& next) {
    Choice answered = choice;
    for (const std::int64_t samples : micro) {
      answered.micro = samples;
      if ((problem.global_batch / choice.strategy.batch_ranks()) % samples == 0) next(answered);
    }
  };
  const Question stages = [&](const Choice& choice, const See& next) {
    const bool chunked = choice.strategy.chunks > 1;
    if (choice.strategy.pipe * choice.strategy.chunks > problem.most_stages()) return;
    if (choice.strategy.pipe == 1 || schedules::find_kind(choice.strategy.schedule).chunked == chunked) next(choice);
  };
  const Question type = [&](const Choice& choice, const See& next) {
    Choice answered = choice;
    for (const std::string& name : precision) {
      answered.precision = name;
      next(answered);
    }
  };
  // What a stage makes again within its memory is fitted to the micro-batches under way, of which schedules with whole backward passes have
  // a closed form.
  const Question again = [&](const Choice& choice, const See& next) {
    Choice answered = choice;
    for (const Recompute kind : recompute) {
      answered.strategy.recompute = kind;
      if (kind != Recompute::optimal || fits_stages(answered.strategy)) next(answered);
    }
  };
  const std::vector<Question> questions{type,
                                        about(&Strategy::tensor, tensor, always, std::int64_t{1}),
                                        about(&Strategy::pipe, pipe, always, std::int64_t{1}),
                                        degrees,
                                        micro_batch,
                                        about(&Strategy::schedule, schedule, piped, rest.schedule),
                                        about(&Strategy::chunks, chunks, piped, std::int64_t{1}),
                                        stages,
                                        about(&Strategy::partition, partition, piped, StagePartition::equal),
                                        about(&Strategy::sequence_parallel, sequence_parallel, split, false),
                                        again};
  Choice shape{.strategy = rest, .micro = 1};
  shape.strategy.offload = {};
  ask(questions, 0, shape, see);
}

void Space::visit_sharing(const Problem& problem, const Choice& shape, const See& see) const {
  const bool several = shape.strategy.data > 1;
  const bool accumulates = shape.micro_batches(problem) > 1;
  const auto shards = [=](const Choice&) { return several; };
  const auto grouped = [=](const Choice& choice) { return several && choice.strategy.zero > 0; };
  const auto sums = [=](const Choice& choice) { return several && accumulates && choice.strategy.zero >= 2; };
  const auto weights = [=](const Choice& choice) { return several && accumulates && choice.strategy.zero == 3; };
  const Question groups = [&](const Choice& choice, const See& next) {
    const std::int64_t group = choice.strategy.zero_group;
    if (group == 0 || (group < choice.strategy.data && choice.strategy.data % group == 0)) next(choice);
  };
  const Question nearest = [&](const Choice& choice, const See& next) {
    Choice answered = choice;
    const strategy::Offload& given = rest.offload;
    answered.strategy.tile = tile.front();
    answered.strategy.embedding_rows = rows.front();
    answered.strategy.offload = {share_of(optimizer.front(), given.optimizer), share_of(gradients.front(), given.gradients),
                                 share_of(params.front(), given.params), share_of(activations.front(), given.activations)};
    next(answered);
  };
  const std::vector<Question> questions{about(&Strategy::zero, zero, shards, has<std::int64_t>(zero, 0) ? std::int64_t{0} : zero.front()),
                                        about(&Strategy::zero_group, zero_group, grouped, std::int64_t{0}),
                                        groups,
                                        about(&Strategy::keep_grads, keep_grads, sums, true),
                                        about(&Strategy::keep_params, keep_params, weights, false),
                                        nearest};
  ask(questions, 0, shape, see);
}

Choice Space::farthest(const Problem& problem, const Choice& choice) const {
  // Every question's last answer holds least on the device.
  Choice far = choice;
  visit_tiers(problem, choice, [&](const Choice& other) { far = other; });
  return far;
}

void Space::visit_tiers(const Problem& problem, const Choice& choice, const See& see) const {
  const Strategy& strategy = choice.strategy;
  const bool sums_leave = strategy::gradients_may_leave(strategy, choice.micro_batches(problem));
  const bool weights_leave = !strategy.keep_params && strategy::weights_may_leave(strategy);
  Choice other = choice;
  strategy::Offload& offload = other.strategy.offload;
  for (const Tier states : optimizer) {
    offload.optimizer = share_of(states, rest.offload.optimizer);
    for (const Tier weights : params) {
      if (weights > states || (weights != Tier::device && !weights_leave)) continue;
      offload.params = share_of(weights, rest.offload.params);
      for (const Tier sums : gradients) {
        if (sums > states || (sums != Tier::device && !sums_leave)) continue;
        offload.gradients = share_of(sums, rest.offload.gradients);
        for (const Tier kept : activations) {
          if (kept != Tier::device && strategy.pipe > 1) continue;
          offload.activations = share_of(kept, rest.offload.activations);
          for (const Bytes most : tile) {
            if (most != tile.front() && weights == Tier::device) continue;
            other.strategy.tile = most;
            for (const EmbeddingRows table : rows) {
              other.strategy.embedding_rows = table;
              if (other != choice) see(other);
            }
          }
        }
      }
    }
  }
}

Space whole_space(const Problem& problem, const Pins& pins, const Strategy& rest) {
  std::vector<std::int64_t> pipes;
  for (const std::int64_t pipe : divisors(problem.ranks)) {
    if (pipe <= problem.most_stages()) pipes.push_back(pipe);
  }
  std::vector<std::int64_t> tensors;
  // Tensor ranks talk in every layer: they stay inside a node where a node has several.
  const std::int64_t most = problem.ranks_per_node > 1 ? problem.ranks_per_node : problem.ranks;
  for (const std::int64_t tensor : divisors(problem.ranks)) {
    if (tensor <= most && problem.heads % tensor == 0) tensors.push_back(tensor);
  }
  // Heads that do not come out even leave some ranks less to do: better than ranks that cannot be used.
  if (tensors.size() <= 1) {
    for (const std::int64_t tensor : divisors(problem.ranks)) {
      if (tensor > 1 && tensor <= std::min(most, problem.heads)) tensors.push_back(tensor);
    }
  }
  std::vector<std::int64_t> chunks;
  for (std::int64_t count = 1; count <= std::min(kMostChunks, problem.layers); ++count) chunks.push_back(count);
  std::vector<std::int64_t> groups{0};
  if (problem.ranks > problem.ranks_per_node && problem.ranks_per_node > 1) {
    for (const std::int64_t tensor : tensors) {
      const std::int64_t group = problem.ranks_per_node / tensor;
      if (group > 1 && !has(groups, group)) groups.push_back(group);
    }
  }
  std::vector<Bytes> tiles_of_weights{rest.tile};
  if (problem.largest.count > problem.device.count / kWorthTiles && rest.tile.count == 0)
    tiles_of_weights.push_back(tile_for(problem, kTilesOfSearch));
  std::vector<Tier> near{Tier::device};
  if (problem.host_is_a_tier && problem.host.count > 0) near.push_back(Tier::host);
  std::vector<Tier> tiers = near;
  if (problem.disk.count > 0) tiers.push_back(Tier::disk);
  std::vector<EmbeddingRows> rows{rest.embedding_rows};
  if (problem.disk.count > 0 && problem.rows_may_leave && rest.embedding_rows == EmbeddingRows::whole) rows.push_back(EmbeddingRows::disk);
  return {.data = pinned_or(pins.data, divisors(problem.ranks)),
          .tensor = pinned_or(pins.tensor, tensors),
          .pipe = pinned_or(pins.pipe, pipes),
          .chunks = pinned_or(pins.chunks, chunks),
          .zero = pinned_or(pins.zero, {0, 1, 2, 3}),
          .zero_group = pinned_or(pins.zero_group, groups),
          .micro = pinned_or(pins.micro, divisors(problem.global_batch)),
          .keep_params = pinned_or(pins.keep_params, {false, true}),
          .keep_grads = pinned_or(pins.keep_grads, {true, false}),
          .sequence_parallel = pinned_or(pins.sequence_parallel, {false, true}),
          .schedule = pinned_or(pins.schedule, searched_schedules()),
          .precision = pinned_or(pins.precision, problem.precisions),
          .optimizer = pinned_or(pins.optimizer, tiers),
          .params = pinned_or(pins.params, tiers),
          .gradients = pinned_or(pins.gradients, tiers),
          .activations = pinned_or(pins.activations, near.size() > 1 ? near : tiers),
          .recompute = pinned_or(pins.recompute, {Recompute::none, Recompute::selective, Recompute::full, Recompute::optimal}),
          .partition = pinned_or(pins.partition, {StagePartition::equal, StagePartition::by_cost}),
          .rows = pinned_or(pins.rows, rows),
          .tile = pinned_or(pins.tile, tiles_of_weights),
          .rest = rest};
}

Space lean_space(const Problem& problem, const Pins& pins, const Strategy& rest) {
  Space space = whole_space(problem, pins, rest);
  space.micro = {space.micro.front()};
  if (!pins.schedule) space.schedule = {std::string(schedules::kUsual)};
  if (!pins.recompute) space.recompute = {Recompute::full, Recompute::optimal};
  if (!pins.keep_params) space.keep_params = {false};
  if (!pins.keep_grads) space.keep_grads = {true, false};
  if (!pins.zero) space.zero = {0, 3};
  return space;
}

std::vector<std::string> contradictions(const Problem& problem, const Pins& pins, std::int64_t others) {
  std::vector<std::string> found;
  const auto against = [&](bool holds, std::string text) {
    if (holds) found.push_back(std::move(text));
  };
  const auto value = [](const auto& pin, std::int64_t otherwise) { return pin ? static_cast<std::int64_t>(*pin) : otherwise; };
  std::vector<std::pair<std::string, std::int64_t>> degrees;
  for (const auto& [name, pin] : {std::pair{"data", pins.data}, {"tensor", pins.tensor}, {"pipe", pins.pipe}}) {
    if (pin) degrees.emplace_back(name, *pin);
  }
  for (const auto& [name, degree] : degrees)
    against(problem.ranks % degree != 0, fmt::format("\"{}\": {} does not divide the {} ranks", name, degree, problem.ranks));
  for (std::size_t a = 0; a < degrees.size() && found.empty(); ++a) {
    for (std::size_t b = a + 1; b < degrees.size(); ++b) {
      against(problem.ranks % (degrees[a].second * degrees[b].second) != 0,
              fmt::format("\"{}\": {} and \"{}\": {} make {} ranks together, which does not divide {}", degrees[a].first, degrees[a].second,
                          degrees[b].first, degrees[b].second, degrees[a].second * degrees[b].second, problem.ranks));
    }
  }
  if (found.empty() && degrees.size() == 3) {
    const std::int64_t product = degrees[0].second * degrees[1].second * degrees[2].second;
    const std::string more = others == 1 ? "" : fmt::format(" of {} each", others);
    against(product * others != problem.ranks,
            fmt::format("\"data\": {}, \"tensor\": {} and \"pipe\": {} make {} ranks{}, but there are {}", degrees[0].second,
                        degrees[1].second, degrees[2].second, product, more, problem.ranks));
  }
  const std::int64_t samples = value(pins.micro, 1) * value(pins.data, 1);
  against(problem.global_batch % samples != 0,
          fmt::format("\"batch.micro\": {} and \"data\": {} make {} samples, which does not divide the batch of {}", value(pins.micro, 1),
                      value(pins.data, 1), samples, problem.global_batch));
  const std::int64_t stages = value(pins.pipe, 1) * value(pins.chunks, 1);
  against(stages > problem.most_stages(),
          fmt::format("\"pipe\": {} and \"chunks\": {} make {} stages, but the model has {} layers, an embedding and a head",
                      value(pins.pipe, 1), value(pins.chunks, 1), stages, problem.layers));
  against(pins.pipe == 1 && pins.chunks.value_or(1) > 1,
          fmt::format("\"pipe\": 1 and \"chunks\": {}: chunks need a pipeline", pins.chunks.value_or(1)));
  against(pins.tensor.value_or(1) > problem.heads,
          fmt::format("\"tensor\": {} and a model of {} heads: each rank needs one", pins.tensor.value_or(1), problem.heads));
  against(pins.tensor == 1 && pins.sequence_parallel.value_or(false),
          "\"tensor\": 1 and \"sequence_parallel\": true: rows are shared out between tensor ranks");
  const bool chunked = pins.schedule && schedules::find_kind(*pins.schedule).chunked;
  against(chunked && pins.chunks == 1,
          fmt::format("\"schedule\": \"{}\" and \"chunks\": 1: it needs 2 or more", pins.schedule.value_or("")));
  against(pins.schedule && !chunked && pins.chunks.value_or(1) > 1,
          fmt::format("\"schedule\": \"{}\" and \"chunks\": {}: only {} has several", pins.schedule.value_or(""), pins.chunks.value_or(1),
                      in_quotes([](const schedules::Kind& kind) { return kind.chunked; })));
  against(
      pins.recompute == Recompute::optimal && pins.pipe.value_or(1) > 1 && pins.schedule && !fits_stages(*pins.pipe, *pins.schedule),
      fmt::format("\"recompute\": \"optimal\" and \"schedule\": \"{}\": the search fits it to {}; it can be run with a strategy that is "
                  "given whole",
                  pins.schedule.value_or(""), in_quotes([](const schedules::Kind& kind) { return kind.fits_memory(); })));
  constexpr std::array<std::string_view, 3> kTiers{"none", "host", "disk"};
  const auto tier = [&](const std::optional<Tier>& pin) { return kTiers.at(static_cast<std::size_t>(pin.value_or(Tier::device))); };
  for (const auto& [name, pin] : {std::pair{"params", pins.params}, {"gradients", pins.gradients}}) {
    against(pin && pins.optimizer && *pin > *pins.optimizer,
            fmt::format("\"offload.{}\": \"{}\" and \"offload.optimizer\": \"{}\": it would be farther away than what updates with it",
                        name, tier(pin), tier(pins.optimizer)));
  }
  against(pins.zero == 0 && pins.zero_group.value_or(0) > 0,
          fmt::format("\"zero\": 0 and \"zero_group\": {}: nothing is shared out", pins.zero_group.value_or(0)));
  return found;
}

}  // namespace plimsoll::planner
