#include "corpus/cases.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "cluster/presets.h"
#include "config/config.h"
#include "corpus/tables.h"
#include "train/foresight/forecast.h"
#include "train/setup/setup.h"

namespace plimsoll::corpus {

namespace {

// Sizes that divide by what the layouts divide by, and where the rows do not say otherwise.
constexpr std::string_view kRun = R"({
  "model": {"family": "gpt2", "layers": 4, "width": 64, "heads": 4, "ffn": 128, "context": 32, "vocab": 96},
  "data": {"train": "tokens"}, "device": "cpu", "threads": 2,
  "batch": {"global": 8, "sequence": 16},
  "limits": {"disk_path": "disk"}
})";
constexpr train::Decoding kDecoding{.slots = 32, .prompt_rows = 8};
constexpr model::MicroBatch kInference{.samples = 2, .sequence = 16};
// Between what the cases need with everything made again and with everything kept.
constexpr base::Bytes kDeviceLimit{1'700'000};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

Target target_named(std::string_view name) {
  return name == "outline" ? Target::outline : name == "described" ? Target::described : Target::cpu;
}

enum Table : std::size_t { kLayout, kMemory, kModel, kNumbers, kBatch, kTarget, kTables };

// One row of each table, null where it is still to be chosen.
using Rows = std::array<const Row*, kTables>;

std::span<const Row> table(std::size_t index) { return std::array{layouts(), memory(), models(), numbers(), batches(), targets()}[index]; }

Case case_of(std::span<const Row* const> rows, Target target) {
  Case made;
  made.target = target;
  for (const Row* row : rows) {
    made.name += fmt::format("{}{}", made.name.empty() ? "" : "/", row->name);
    for (std::string& setting : words_of(row->set)) made.set.push_back(std::move(setting));
  }
  return made;
}

// Completes cases table by table, each time with the row that was least often beside those that the case has already.
class Dealer {
 public:
  Case deal(Rows rows) {
    for (std::size_t index = 0; index < kTables; ++index) {
      if (rows[index] == nullptr) rows[index] = &least_met(table(index), rows);
    }
    for (const Row* one : rows) {
      for (const Row* other : rows) ++meetings_[{one, other}];
    }
    return case_of(rows, target_named(rows[kTarget]->name));
  }
  std::int64_t meetings(const Row& one, const Row& other) const {
    const auto found = meetings_.find({&one, &other});
    return found == meetings_.end() ? 0 : found->second;
  }

 private:
  const Row& least_met(std::span<const Row> choices, const Rows& rows) const {
    const auto met = [&](const Row& row) {
      std::int64_t sum = 0;
      for (const Row* other : rows) sum += other == nullptr ? 0 : meetings(row, *other);
      return sum;
    };
    return *std::min_element(choices.begin(), choices.end(), [&](const Row& a, const Row& b) { return met(a) < met(b); });
  }

  std::map<std::pair<const Row*, const Row*>, std::int64_t> meetings_;
};

void add_training(std::vector<Case>& list) {
  Dealer dealer;
  for (std::size_t layout = 0; layout < layouts().size(); ++layout) {
    const std::size_t uses = layout < kLayoutsWithAllMemory ? memory().size() : kMemoryWithAllLayouts;
    for (const Row& use : memory().first(uses)) {
      list.push_back(dealer.deal({&layouts()[layout], &use}));
      list.back().trained = list.back().target == Target::cpu;
    }
  }
  for (const auto& [first, second] :
       {std::pair<Table, Table>{kLayout, kNumbers}, {kMemory, kNumbers}, {kLayout, kModel}, {kMemory, kModel}}) {
    for (const Row& one : table(first)) {
      for (const Row& other : table(second)) {
        Rows rows{};
        rows[first] = &one;
        rows[second] = &other;
        if (first == kLayout) rows[kMemory] = &memory().front();
        if (dealer.meetings(one, other) == 0) list.push_back(dealer.deal(rows));
      }
    }
  }
}

// Training on one rank with every model in every precision, and how each generates.
void add_models(std::vector<Case>& list) {
  static constexpr Row kGenerate{"generate"};
  for (const Row& model : models()) {
    for (const Row& kind : numbers()) {
      list.push_back(case_of(Rows{&layouts()[0], &memory()[0], &model, &kind, &batches()[0], &targets()[0]}, Target::cpu));
      list.back().trained = true;
      const bool plain = kind.name.find('-') == std::string_view::npos;
      if (plain) list.push_back(case_of(std::array{&kGenerate, &model, &kind}, Target::generate));
    }
  }
}

void add_large(std::vector<Case>& list) {
  for (const LargeRow& row : large_runs()) {
    list.push_back({.name = fmt::format("large/{}", row.name),
                    .target = row.outline ? Target::outline : Target::described,
                    .trained = false,
                    .set = words_of(row.set),
                    .cluster = std::string(row.cluster)});
  }
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> list;
  add_models(list);
  add_training(list);
  add_large(list);
  // Those of the models come first, since they are trained: others may have been dealt out alike.
  std::set<std::string> seen;
  std::erase_if(list, [&](const Case& one) { return !seen.insert(one.name).second; });
  return list;
}

std::vector<Case> cases_for(const executor::Backend& backend) {
  std::vector<Case> list = cases();
  std::erase_if(list, [](const Case& one) { return one.target != Target::cpu && one.target != Target::generate; });
  for (Case& one : list) {
    one.name = fmt::format("{}/{}", backend.name(), one.name);
    one.backend = &backend;
  }
  return list;
}

config::Run run_of(const Case& one) { return config::parse_run(kRun, "corpus.json", one.set); }

train::SessionOptions options_of(const Case& one, const config::Run& run) {
  if (one.target == Target::described || one.target == Target::outline)
    return train::described_session(run, cluster::preset(one.cluster), {});
  const bool trains = one.target == Target::cpu;
  train::SessionOptions options = train::session_options(run, {.train = trains, .evaluate = true});
  if (!trains) options.infer = kInference;
  if (!trains && run.model.family != families::bert()) options.decode = kDecoding;
  if (one.backend != nullptr) options.backend = one.backend;
  const bool fitted = run.strategy.recompute == strategy::Recompute::optimal && run.strategy.recompute_memory == 0.0;
  options.device_limit = fitted ? kDeviceLimit : base::Bytes{};
  options.host_limit = {};
  options.link = 0.0;
  return options;
}

plan::Plan plan_of(const Case& one) {
  const train::SessionOptions options = options_of(one, run_of(one));
  return one.target == Target::outline ? train::outline_session(options) : train::plan_session(options);
}

}  // namespace plimsoll::corpus
