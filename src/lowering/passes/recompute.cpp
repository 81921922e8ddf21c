#include "lowering/passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/error.h"
#include "graph/rewrite.h"
#include "lowering/passes/block_chain.h"
#include "solvers/pofo.h"
#include "solvers/rotor.h"

namespace plimsoll::lowering {

namespace {

using graph::BlockId;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Value;
using graph::ValueId;
using strategy::Recompute;
using Work = RecomputeStep::Work;

// Writes the nodes of a step anew in another order, some of them several times.
class Rerun {
 public:
  explicit Rerun(const Graph& old) : old_(old), passes_(passes_of(old)), once_(graph::nodes_that_run_once(old)), rewrite_(old) {
    for (std::size_t index = 0; index < passes_.size(); ++index) at_[passes_[index].block.index] = index;
  }

  Graph run(const std::vector<RecomputeStep>& steps) {
    std::uint32_t next = 0;
    const auto others_until = [&](auto stops) {
      for (; next < old_.nodes.size() && !stops(old_.nodes[NodeId{next}].phase); ++next) rewrite_.keep(old_.nodes[NodeId{next}]);
    };
    others_until([](Phase phase) { return graph::runs_per_micro_batch(phase); });
    for (const RecomputeStep& step : steps) add(step);
    while (next < old_.nodes.size() && graph::runs_per_micro_batch(old_.nodes[NodeId{next}].phase)) ++next;
    others_until([](Phase) { return false; });
    PLIMSOLL_CHECK(ran_.size() == 2 * passes_.size(), "an order of recompute leaves out a pass");
    Graph again = rewrite_.take();
    remove_unused(again);
    return again;
  }

 private:
  void add(const RecomputeStep& step) {
    const auto found = at_.find(step.block.index);
    if (found == at_.end()) return;  // a block that another rank has
    const BlockPasses& block = passes_[found->second];
    const bool first = ran_.insert({step.block.index, step.work == Work::backward}).second;
    if (step.work == Work::rebuild) {
      for (const Rebuilt& rebuilt : block.rebuilds)
        again({.op = rebuilt.op, .inputs = rebuilt.inputs, .outputs = rebuilt.makes, .block = step.block});
    } else if (step.work == Work::backward) {
      PLIMSOLL_CHECK(first, "a backward pass runs twice");
      for (NodeId id : block.backward) rewrite_.keep(old_.nodes[id]);
    } else {
      for (NodeId id : block.forward) {
        if (first) {
          rewrite_.keep(old_.nodes[id]);
        } else if (!once_[id.index]) {  // what the others made is kept
          again(old_.nodes[id]);
        }
      }
    }
  }

  // The node a second time; what it makes stands for what was made before from here on.
  void again(Node node) {
    if (ops::is_message(node.op)) return;  // what came from another stage is kept, what went there is there
    for (const ops::Alias& alias : ops::aliases_of(node.op)) {
      const ValueId input = node.inputs[static_cast<std::size_t>(alias.input)];
      PLIMSOLL_CHECK(!alias.required || alias.view || old_.values[input].role == graph::Role::computed, "{} would be changed twice",
                     old_.values[input].name);
    }
    node.phase = Phase::recompute;
    for (ValueId& output : node.outputs) {
      const ValueId stands_for = output;
      Value value = old_.values[stands_for];
      value.name += fmt::format(".again{}", times_[stands_for.index]++ == 0 ? "" : fmt::format(".{}", times_[stands_for.index]));
      output = rewrite_.declare(stands_for, std::move(value));
    }
    rewrite_.keep(std::move(node));
  }

  const Graph& old_;
  std::vector<BlockPasses> passes_;
  std::vector<bool> once_;                        // by node
  std::map<std::uint32_t, std::size_t> at_;       // block -> its passes
  std::map<std::uint32_t, int> times_;            // old value -> how often it was made again
  std::set<std::pair<std::uint32_t, bool>> ran_;  // (block, backward)
  graph::Rewrite rewrite_;
};

// ---- orders

std::vector<RecomputeStep> forwards(const std::vector<BlockPasses>& passes, std::size_t first, std::size_t last) {
  std::vector<RecomputeStep> steps;
  for (std::size_t index = first; index < last; ++index) steps.push_back({Work::forward, passes[index].block});
  return steps;
}

// A run of blocks that a rank goes through in one piece: all of them, or those of a pipeline's stage.
struct Run {
  std::size_t first = 0;  // in the passes
  std::size_t end = 0;
  std::size_t stage = 0;
};

std::vector<Run> runs_of(const std::vector<BlockPasses>& passes, const std::vector<std::int32_t>& stage_of_block) {
  const auto stage = [&](std::size_t index) { return stage_of_block.empty() ? 0 : stage_of_block[passes[index].block.index]; };
  std::vector<Run> runs;
  for (std::size_t index = 0; index < passes.size(); ++index) {
    if (index == 0 || stage(index) != stage(index - 1)) runs.push_back({index, index, static_cast<std::size_t>(stage(index))});
    runs.back().end = index + 1;
  }
  return runs;
}

// Steps of runs of blocks, each forward once and then back with what is made again: all go forward before the last goes back.
std::vector<RecomputeStep> joined(const std::vector<std::vector<RecomputeStep>>& runs) {
  const auto turn = [](const std::vector<RecomputeStep>& steps) {
    std::set<std::uint32_t> seen;
    return std::find_if(steps.begin(), steps.end(),
                        [&](const RecomputeStep& step) { return step.work != Work::forward || !seen.insert(step.block.index).second; });
  };
  std::vector<RecomputeStep> all;
  for (const std::vector<RecomputeStep>& steps : runs) all.insert(all.end(), steps.begin(), turn(steps));
  for (auto steps = runs.rbegin(); steps != runs.rend(); ++steps) all.insert(all.end(), turn(*steps), steps->end());
  return all;
}

// Groups of `every` blocks between what comes before and after the repeated ones; the last block, with the loss, is never one.
std::vector<RecomputeStep> full(const std::vector<BlockPasses>& passes, const Run& run, std::size_t every) {
  std::vector<RecomputeStep> steps = forwards(passes, run.first, run.end);
  std::size_t end = run.end;
  if (end == passes.size()) steps.push_back({Work::backward, passes[--end].block});
  while (end > run.first) {
    const std::size_t begin = run.first + (end - run.first - 1) / every * every;
    const std::vector<RecomputeStep> again = forwards(passes, begin, end);
    steps.insert(steps.end(), again.begin(), again.end());
    for (std::size_t index = end; index-- > begin;) steps.push_back({Work::backward, passes[index].block});
    end = begin;
  }
  return steps;
}

std::vector<RecomputeStep> selective(const std::vector<BlockPasses>& passes) {
  std::vector<RecomputeStep> steps = forwards(passes, 0, passes.size());
  for (std::size_t index = passes.size(); index-- > 0;) {
    steps.push_back({Work::rebuild, passes[index].block});
    steps.push_back({Work::backward, passes[index].block});
  }
  return steps;
}

std::vector<RecomputeStep> steps_of(const std::vector<BlockPasses>& passes, const Run& run, const solvers::ChainOrder& order) {
  std::vector<RecomputeStep> steps;
  for (const solvers::ChainStep& step : order) {
    const std::size_t index = run.first + static_cast<std::size_t>(step.stage);
    if (index == run.end) continue;  // the stages behind this one
    const BlockId block = passes[index].block;
    const bool backward = step.work == solvers::ChainStep::Work::backward;
    if (backward && step.form > 0) steps.push_back({Work::rebuild, block});
    steps.push_back({backward ? Work::backward : Work::forward, block});
  }
  return steps;
}

// ---- words

// What the steps run again and what that costs, from the graph they give.
class Description {
 public:
  Description(const Graph& before, const Graph& after) : before_(before), after_(after) {}

  std::vector<std::string> lines(std::string_view kind) const {
    double once = 0.0;
    double again = 0.0;
    for (const Node& node : after_.nodes) {
      if (graph::runs_per_micro_batch(node.phase)) (node.phase == Phase::recompute ? again : once) += work(node);
    }
    std::vector<std::string> lines{
        fmt::format("recompute {}: {:.1f}% more arithmetic; a micro-batch keeps {} for its backward pass, not {}", kind,
                    100.0 * again / std::max(1.0, once), base::to_string(kept(after_)), base::to_string(kept(before_)))};
    // Blocks with the same list of values stand on one line.
    std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> groups;
    for (std::uint32_t index = 0; index < after_.blocks.size(); ++index) {
      const std::vector<std::string> made = made_again(BlockId{index});
      if (made.empty()) continue;
      if (groups.empty() || groups.back().first != made) groups.push_back({made, {}});
      groups.back().second.push_back(after_.blocks[BlockId{index}].name);
    }
    for (const auto& [made, blocks] : groups) {
      const std::string where = blocks.size() == 1 ? blocks[0] : fmt::format("{} to {}", blocks.front(), blocks.back());
      lines.push_back(fmt::format("  made again in {}: {}", where, fmt::join(made, ", ")));
    }
    return lines;
  }

 private:
  double work(const Node& node) const {
    return ops::definition_of(node.op).work(node.op, after_.types(node.inputs), after_.types(node.outputs)).flops;
  }

  // Bytes that the forward pass leaves for the backward pass.
  static base::Bytes kept(const Graph& graph) {
    std::vector<bool> read(graph.values.size(), false);
    for (const Node& node : graph.nodes) {
      if (node.phase != Phase::recompute && node.phase != Phase::backward) continue;
      for (ValueId id : node.inputs) read[id.index] = true;
    }
    const std::set<ValueId> gradients = weight_gradients(graph);
    base::Bytes sum{0};
    for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
      const Value& value = graph.values[ValueId{index}];
      if (read[index] && !gradients.contains(ValueId{index}) && value.producer.valid() &&
          graph.nodes[value.producer].phase == Phase::forward)
        sum += base::Bytes{value.type.bytes()};
    }
    return sum;
  }

  // Operators of the block that run again, each with how often.
  std::vector<std::string> made_again(BlockId block) const {
    std::vector<std::pair<std::string_view, int>> counts;
    for (const Node& node : after_.nodes) {
      if (node.phase != Phase::recompute || node.block != block) continue;
      const std::string_view name = ops::name_of(node.op);
      const auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == name; });
      if (found == counts.end()) {
        counts.emplace_back(name, 1);
      } else {
        ++found->second;
      }
    }
    std::vector<std::string> words;
    for (const auto& [name, count] : counts) words.push_back(count == 1 ? std::string(name) : fmt::format("{} x {}", count, name));
    return words;
  }

  const Graph& before_;
  const Graph& after_;
};

// The part of the chain that a run is. What comes back from the stages behind it comes after a while, in which nothing but what is kept is
// there: they are one more link, which takes no time. Where several micro-batches are under way, what each keeps between its passes
// counts so many times, and what a pass needs for itself once: then as much as the least that any order needs must be free beside what
// is kept, so that less memory is less kept.
solvers::Chain chain_of(const solvers::Chain& whole, const Run& run, const RecomputeChoice& choice) {
  solvers::Chain chain;
  if (run.first > 0) chain.input = whole.stages[run.first - 1].output;
  chain.stages.assign(whole.stages.begin() + static_cast<std::ptrdiff_t>(run.first),
                      whole.stages.begin() + static_cast<std::ptrdiff_t>(run.end));
  if (run.end < whole.stages.size()) chain.stages.push_back({.forms = {solvers::ChainForm{}}});
  if (run.stage < choice.under_way.size() && choice.under_way[run.stage] > 1) chain.stages.back().temporary += least_memory(chain);
  return chain;
}

// What runs again, of one run of blocks, and what leaves the device.
struct RunOrder {
  std::vector<RecomputeStep> steps;
  std::set<BlockId> leaving;
};

// Both chosen together.
std::optional<RunOrder> joint_order(const solvers::Chain& chain, const std::vector<BlockPasses>& passes, const Run& run,
                                    std::int64_t memory, double link) {
  const solvers::JointProgramme programme(chain, memory, {.out = link, .in = link});
  const std::optional<solvers::JointOrder> joint = programme.fastest();
  if (!joint) return std::nullopt;
  RunOrder order{.steps = steps_of(passes, run, programme.order_of(*joint)), .leaving = {}};
  const auto leaves = [&](std::int32_t stage) {
    const std::size_t index = run.first + static_cast<std::size_t>(stage);
    if (index < run.end) order.leaving.insert(passes[index].block);
  };
  bool again = false;  // the segment before keeps nothing but its input
  for (const solvers::ChainSegment& segment : joint->segments) {
    const bool runs_again = segment.form == solvers::ChainStep::kOutputOnly;
    if (segment.leaves && !runs_again) leaves(segment.first);
    if (segment.leaves && again) leaves(segment.first - 1);
    again = runs_again;
  }
  return order;
}

RunOrder optimal(const solvers::Chain& chain, const std::vector<BlockPasses>& passes, const Run& run, std::int64_t memory, double link) {
  if (link > 0.0) {
    if (std::optional<RunOrder> joint = joint_order(chain, passes, run, memory, link)) return std::move(*joint);
  }
  std::optional<solvers::ChainOrder> order = fastest_order(chain, memory);
  if (!order) order = fastest_order(chain, least_memory(chain));
  PLIMSOLL_CHECK(order.has_value(), "no order of forward and backward passes does with the least memory");
  return {.steps = steps_of(passes, run, *order), .leaving = {}};
}

RecomputeOrder optimal(const Graph& graph, const std::vector<BlockPasses>& passes, const RecomputeChoice& choice) {
  const solvers::Chain whole = chain_of(graph, passes, choice.accumulates);
  std::vector<std::vector<RecomputeStep>> steps;
  RecomputeOrder order;
  if (choice.link > 0.0) order.leaving.emplace();
  for (const Run& run : runs_of(passes, choice.stage_of_block)) {
    RunOrder found = optimal(chain_of(whole, run, choice), passes, run, choice.memory.at(run.stage), choice.link);
    steps.push_back(std::move(found.steps));
    if (order.leaving) order.leaving->merge(found.leaving);
  }
  order.steps = joined(steps);
  return order;
}

RecomputeOrder full(const std::vector<BlockPasses>& passes, const RecomputeChoice& choice) {
  std::vector<std::vector<RecomputeStep>> steps;
  for (const Run& run : runs_of(passes, choice.stage_of_block)) steps.push_back(full(passes, run, static_cast<std::size_t>(choice.every)));
  return {.steps = joined(steps), .notes = {}};
}

RecomputeOrder steps_for(const Graph& graph, const std::vector<BlockPasses>& passes, const RecomputeChoice& choice) {
  switch (choice.kind) {
    case Recompute::none: return {};
    case Recompute::full: return full(passes, choice);
    case Recompute::selective: return {.steps = selective(passes), .notes = {}};
    case Recompute::optimal: return optimal(graph, passes, choice);
  }
  return {};
}

// "blocks.0 to blocks.7 leave the device between the passes"
std::string leaving_text(const Graph& graph, const std::set<BlockId>& blocks) {
  std::vector<std::string> runs;
  for (auto first = blocks.begin(); first != blocks.end();) {
    auto last = first;
    while (std::next(last) != blocks.end() && std::next(last)->index == last->index + 1) ++last;
    runs.push_back(first == last ? graph.blocks[*first].name
                                 : fmt::format("{} to {}", graph.blocks[*first].name, graph.blocks[*last].name));
    first = std::next(last);
  }
  return fmt::format("  what is kept of {} leaves the device between the passes", fmt::join(runs, ", "));
}

std::string name_of(const RecomputeChoice& choice) {
  switch (choice.kind) {
    case Recompute::none: return "none";
    case Recompute::full: return choice.every == 1 ? "full" : fmt::format("full, every {} blocks", choice.every);
    case Recompute::selective: return "selective";
    case Recompute::optimal: return "optimal";
  }
  return "?";
}

}  // namespace

RecomputeOrder order_of_recompute(const Graph& graph, const RecomputeChoice& choice) {
  const std::vector<BlockPasses> passes = passes_of(graph);
  if (passes.size() < 2) return {};
  RecomputeOrder order = steps_for(graph, passes, choice);
  if (!order.steps.empty()) {
    const Graph after = recompute(graph, order);
    order.notes = Description(graph, after).lines(name_of(choice));
    for (const Node& node : after.nodes) order.again += node.phase == Phase::recompute ? price(after, node) : 0.0;
  }
  if (order.leaving && !order.leaving->empty()) order.notes.push_back(leaving_text(graph, *order.leaving));
  return order;
}

std::vector<MemoryRange> memory_ranges(const Graph& graph, const RecomputeChoice& choice) {
  const std::vector<BlockPasses> passes = passes_of(graph);
  const solvers::Chain whole = chain_of(graph, passes, choice.accumulates);
  std::vector<MemoryRange> ranges;
  for (const Run& run : runs_of(passes, choice.stage_of_block)) {
    const solvers::Chain chain = chain_of(whole, run, choice);
    ranges.resize(run.stage + 1);
    ranges.back() = {.least = least_memory(chain), .most = replay(chain, keep_all(chain)).peak};
  }
  return ranges;
}

Graph recompute(const Graph& graph, const RecomputeOrder& order) {
  if (order.steps.empty()) return graph;
  return Rerun(graph).run(order.steps);
}

}  // namespace plimsoll::lowering
