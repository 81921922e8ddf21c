#include "planner/neighbours.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "strategy/dimension.h"
#include "strategy/schedules/table.h"

namespace plimsoll::planner {

namespace schedules = strategy::schedules;
using strategy::EmbeddingRows;
using strategy::Recompute;
using strategy::StagePartition;
using strategy::Strategy;

namespace {

template <typename T>
bool has(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The value before and after `now` in the list.
template <typename T>
std::vector<T> beside(const std::vector<T>& values, const T& now) {
  const auto at = std::find(values.begin(), values.end(), now);
  std::vector<T> found;
  if (at == values.end()) return found;
  if (at != values.begin()) found.push_back(*std::prev(at));
  if (std::next(at) != values.end()) found.push_back(*std::next(at));
  return found;
}

class Neighbours {
 public:
  Neighbours(const Problem& problem, const Space& space, const Choice& choice) : problem_(problem), space_(space), choice_(choice) {}

  std::vector<Neighbour> run() {
    const Strategy& now = choice_.strategy;
    for (const std::int64_t tensor : beside(space_.tensor, now.tensor)) {
      trade(fmt::format("tensor {}", tensor), &Strategy::tensor, tensor, &Strategy::data);
      trade(fmt::format("tensor {}", tensor), &Strategy::tensor, tensor, &Strategy::pipe);
    }
    for (const std::int64_t pipe : beside(space_.pipe, now.pipe))
      trade(fmt::format("pipe {}", pipe), &Strategy::pipe, pipe, &Strategy::data);
    for (const std::int64_t micro : beside(divisors(problem_.global_batch / now.batch_ranks()), choice_.micro)) {
      if (!has(space_.micro, micro)) continue;
      add(fmt::format("micro-batch {}", micro), [&](Choice& other) { other.micro = micro; });
    }
    for (const std::int64_t zero : space_.zero) {
      if (zero != now.zero && now.data > 1) add(fmt::format("ZeRO {}", zero), [&](Choice& other) { other.strategy.zero = zero; });
    }
    if (now.data > 1) add_whole();
    for (const Recompute again : space_.recompute) {
      if (again != now.recompute && (again != Recompute::optimal || fits_stages(now)))
        add(fmt::format("recompute {}", strategy::name_of(again)), [&](Choice& other) { other.strategy.recompute = again; });
    }
    if (now.pipe > 1) add_pipelines();
    for (const bool rows : space_.sequence_parallel) {
      if (rows != now.sequence_parallel && now.tensor > 1)
        add(rows ? "sequence parallel" : "no sequence parallelism", [&](Choice& other) { other.strategy.sequence_parallel = rows; });
    }
    add_tiers("optimizer", space_.optimizer, &strategy::Offload::optimizer);
    add_tiers("weights", space_.params, &strategy::Offload::params);
    add_tiers("gradients", space_.gradients, &strategy::Offload::gradients);
    if (now.pipe == 1) add_tiers("activations", space_.activations, &strategy::Offload::activations);
    for (const EmbeddingRows rows : space_.rows) {
      if (rows != now.embedding_rows)
        add(rows == EmbeddingRows::disk ? "the token table's rows on the disk" : "the token table as other weights",
            [&](Choice& other) { other.strategy.embedding_rows = rows; });
    }
    for (const std::string& name : space_.precision) {
      if (name != choice_.precision) add(name, [&](Choice& other) { other.precision = name; });
    }
    return std::move(found_);
  }

 private:
  template <typename Change>
  void add(std::string what, const Change& change) {
    Neighbour neighbour{.what = std::move(what), .choice = choice_};
    change(neighbour.choice);
    Strategy& strategy = neighbour.choice.strategy;
    if (strategy.zero < 2) strategy.keep_grads = true;
    if (strategy.zero < 3) strategy.keep_params = false;
    if (strategy.zero == 0 || strategy.zero_group >= strategy.data) strategy.zero_group = 0;
    if (strategy.tensor == 1) strategy.sequence_parallel = false;
    if (strategy.data == 1) strategy.zero = 0;
    if (strategy.pipe > 1) strategy.offload.activations = {};
    strategy.chunks = std::min(strategy.chunks, std::max<std::int64_t>(1, problem_.most_stages() / strategy.pipe));
    if (strategy.chunks == 1 && strategy.pipe > 1 && schedules::find_kind(strategy.schedule).chunked) strategy.schedule = schedules::kUsual;
    if (strategy.pipe == 1) {
      strategy.chunks = 1;
      strategy.partition = StagePartition::equal;
    }
    if (strategy.recompute == Recompute::optimal && !fits_stages(strategy)) strategy.recompute = Recompute::full;
    if (strategy.recompute != Recompute::full) strategy.recompute_every = 1;
    if (neighbour.choice == choice_) return;
    found_.push_back(std::move(neighbour));
  }

  void add_tiers(std::string_view what, const std::vector<Tier>& tiers, strategy::TierShare strategy::Offload::* share) {
    constexpr std::array<std::string_view, 3> kPlaces{"on the device", "in the host's memory", "on the disk"};
    for (const Tier tier : tiers) {
      if (tier == tier_of(choice_.strategy.offload.*share)) continue;
      // Weights and gradients are not where no update sees them.
      const bool with_states = share != &strategy::Offload::activations && tier > tier_of(choice_.strategy.offload.optimizer);
      add(fmt::format("{}{} {}", with_states && what != "optimizer" ? "optimizer and " : "", what,
                      kPlaces.at(static_cast<std::size_t>(tier))),
          [&](Choice& other) {
            if (with_states) other.strategy.offload.optimizer = all_in(tier);
            other.strategy.offload.*share = all_in(tier);
          });
    }
  }

  // What is in shards between micro-batches.
  void add_whole() {
    const Strategy& now = choice_.strategy;
    for (const bool whole : space_.keep_grads) {
      if (whole != now.keep_grads && now.zero >= 2)
        add(whole ? "whole gradients" : "gradients in shards", [&](Choice& other) { other.strategy.keep_grads = whole; });
    }
    for (const bool whole : space_.keep_params) {
      if (whole != now.keep_params && now.zero == 3)
        add(whole ? "weights that stay gathered" : "weights gathered for each pass",
            [&](Choice& other) { other.strategy.keep_params = whole; });
    }
  }

  // One degree for another, so that the ranks stay as many.
  void trade(const std::string& what, std::int64_t Strategy::* degree, std::int64_t value, std::int64_t Strategy::* other) {
    const Strategy& now = choice_.strategy;
    const std::int64_t product = now.*degree * (now.*other);
    if (product % value != 0) return;
    const std::int64_t left = product / value;
    if (!has(other == &Strategy::data ? space_.data : space_.pipe, left)) return;
    add(fmt::format("{}, {} {}", what, other == &Strategy::data ? "data" : "pipe", left), [&](Choice& choice) {
      choice.strategy.*degree = value;
      choice.strategy.*other = left;
      // A micro-batch that no longer divides what a data rank gets becomes the largest below it that does.
      const std::int64_t samples = std::max<std::int64_t>(1, problem_.global_batch / choice.strategy.batch_ranks());
      while (samples % choice.micro != 0) --choice.micro;
    });
  }

  void add_pipelines() {
    const Strategy& now = choice_.strategy;
    for (const std::string& name : space_.schedule) {
      // Two chunks on every rank take two stages on every rank.
      const bool chunked = schedules::find_kind(name).chunked;
      if (name == now.schedule || (chunked && 2 * now.pipe > problem_.most_stages())) continue;
      add(name, [&](Choice& other) {
        other.strategy.schedule = name;
        other.strategy.chunks = chunked ? 2 : 1;
      });
    }
    if (!schedules::find_kind(now.schedule).chunked) return;
    for (const std::int64_t chunks : beside(space_.chunks, now.chunks)) {
      if (chunks > 1) add(fmt::format("{} chunks", chunks), [&](Choice& other) { other.strategy.chunks = chunks; });
    }
  }

  const Problem& problem_;
  const Space& space_;
  const Choice& choice_;
  std::vector<Neighbour> found_;
};

}  // namespace

std::vector<Neighbour> neighbours(const Problem& problem, const Space& space, const Choice& choice) {
  return Neighbours(problem, space, choice).run();
}

}  // namespace plimsoll::planner
