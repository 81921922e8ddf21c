#include "lowering/layout/issue_order.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace plimsoll::lowering {

namespace {

using graph::Phase;
using strategy::schedules::Item;
using strategy::schedules::Work;

// The phases that an item runs, of one stage and micro-batch. What was not kept is made again by an item of its own, or with the
// backward pass.
bool runs(Work work, Phase phase, bool rebuilt = false) {
  switch (work) {
    case Work::forward: return phase == Phase::forward;
    case Work::recompute: return phase == Phase::recompute;
    case Work::backward: return phase == Phase::backward || phase == Phase::backward_weight || (phase == Phase::recompute && !rebuilt);
    case Work::backward_input: return phase == Phase::backward || (phase == Phase::recompute && !rebuilt);
    case Work::backward_weight: return phase == Phase::backward_weight;
    case Work::update: return phase > Phase::backward_weight && phase != Phase::finish;
  }
  return false;
}

// The micro-batches of a batch that a stage's phase meets first and last.
struct Ends {
  std::int32_t first = -1;
  std::int32_t last = -1;
};

class IssueOrder {
 public:
  IssueOrder(const graph::Graph& graph, const std::vector<Piece>& pieces, const std::vector<Item>& items, std::int32_t micro_batches,
             std::int32_t batches)
      : graph_(graph), pieces_(pieces), micro_batches_(micro_batches) {
    for (const Item& item : items) {
      if (item.work == Work::recompute) rebuilt_.insert({item.stage, item.micro_batch});
      for (Phase phase : {Phase::forward, Phase::recompute, Phase::backward, Phase::backward_weight}) {
        if (!runs(item.work, phase)) continue;
        Ends& ends = ends_[{item.stage, phase, batch_of(item)}];
        if (ends.first < 0) ends.first = item.micro_batch;
        ends.last = item.micro_batch;
      }
    }
    groups_.push_back(once_each(Phase::begin, batches));
    for (const Item& item : items) {
      groups_.push_back(issues_of(item));
      if (item.work == Work::update) newest_ = item.version;
    }
    if (newest_ == 0) groups_.push_back(issues_of({.work = Work::update, .version = 1}));
    groups_.push_back(once_each(Phase::finish, batches));
  }

  std::vector<Issue> run() const {
    std::vector<Issue> order;
    const auto add = [&](std::size_t group, bool received) {
      if (group >= groups_.size()) return;
      for (Issue issue : groups_[group]) {
        if ((pieces_[issue.piece].stream == plan::StreamKind::receive) != received) continue;
        issue.item = static_cast<std::int32_t>(group);
        order.push_back(issue);
      }
    };
    add(0, true);
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      add(group + 1, true);
      add(group, false);
    }
    return order;
  }

 private:
  // Update number n belongs to batch n - 1.
  std::int32_t batch_of(const Item& item) const { return item.work == Work::update ? item.version - 1 : item.micro_batch / micro_batches_; }

  // What is done once in a batch has the number of its first micro-batch.
  template <typename Wanted>
  void add_pieces(std::vector<Issue>& issues, std::int32_t batch, const Wanted& wanted) const {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      if (wanted(pieces_[piece].phase)) issues.push_back({.piece = piece, .micro_batch = batch * micro_batches_, .batch = batch});
    }
  }

  std::vector<Issue> once_each(Phase phase, std::int32_t batches) const {
    std::vector<Issue> issues;
    for (std::int32_t batch = 0; batch < batches; ++batch) add_pieces(issues, batch, [&](Phase found) { return found == phase; });
    return issues;
  }

  std::vector<Issue> issues_of(const Item& item) const {
    std::vector<Issue> issues;
    if (item.work == Work::update) {
      add_pieces(issues, batch_of(item), [](Phase phase) { return runs(Work::update, phase); });
      return issues;
    }
    const bool rebuilt = rebuilt_.contains({item.stage, item.micro_batch});
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      const Piece& piece = pieces_[index];
      if (!runs(item.work, piece.phase, rebuilt) || graph_.blocks[piece.block].stage != item.stage) continue;
      const Ends ends = ends_.at({item.stage, piece.phase, batch_of(item)});
      const bool first = item.micro_batch == ends.first;
      if ((piece.turn == graph::Turn::first && !first) || (piece.turn == graph::Turn::last && item.micro_batch != ends.last)) continue;
      if (piece.turn == graph::Turn::later && first) continue;
      issues.push_back({.piece = index,
                        .micro_batch = item.micro_batch,
                        .batch = batch_of(item),
                        .version = item.version,
                        .newest = newest_,
                        .accumulate = !first});
    }
    return issues;
  }

  const graph::Graph& graph_;
  const std::vector<Piece>& pieces_;
  std::int32_t micro_batches_;
  std::int32_t newest_ = 0;                                             // updates so far, while items are gone through
  std::map<std::tuple<std::int32_t, Phase, std::int32_t>, Ends> ends_;  // by stage, phase and batch
  std::set<std::pair<std::int32_t, std::int32_t>> rebuilt_;             // (stage, micro-batch) with a recompute of its own
  std::vector<std::vector<Issue>> groups_;
};

}  // namespace

std::vector<Issue> issue_order(const graph::Graph& graph, const std::vector<Piece>& pieces, const std::vector<Item>& items,
                               std::int32_t micro_batches, std::int32_t batches) {
  return IssueOrder(graph, pieces, items, micro_batches, batches).run();
}

std::vector<Item> plain_order(const std::vector<std::int32_t>& stages, std::int32_t micro_batches) {
  std::vector<Item> items;
  for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (std::int32_t stage : stages) items.push_back({.work = Work::forward, .stage = stage, .micro_batch = micro_batch});
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
      items.push_back({.work = Work::backward, .stage = *stage, .micro_batch = micro_batch});
  }
  items.push_back({.work = Work::update, .version = 1});
  return items;
}

}  // namespace plimsoll::lowering
