#include "lowering/tiers.h"

#include <algorithm>

#include "base/error.h"
#include "lowering/layout/versions.h"
#include "lowering/passes/block_chain.h"
#include "lowering/passes/carry_update.h"
#include "lowering/passes/offload.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

// Groups of an update whose results may be on their way while the next one's operands come.
constexpr std::size_t kGroupsUnderWay = 1;

// Whether it brings operands of an update that follows the backward pass.
bool brings(const Piece& piece) {
  return piece.phase == graph::Phase::update && (piece.stream == plan::StreamKind::host_out || piece.stream == plan::StreamKind::disk_in);
}

// What a copy takes to slower tiers, or an update's results to faster ones, is not waited for by whoever made it; nor is the update.
bool leaves(const Piece& piece) {
  return piece.stream == plan::StreamKind::host_out || piece.stream == plan::StreamKind::disk_out ||
         (piece.stream == plan::StreamKind::host_compute && piece.turn != graph::Turn::first) ||
         (piece.stream == plan::StreamKind::host_in && (piece.phase == graph::Phase::update || piece.turn == graph::Turn::last));
}

template <typename Counts>
base::Bytes bytes_of(const plan::RankClass& rank_class, const Counts& counts) {
  base::Bytes bytes{0};
  for (const plan::Buffer& buffer : rank_class.buffers) bytes += counts(buffer) ? buffer.bytes : base::Bytes{0};
  return bytes;
}

// A gradient between two steps.
bool waits(const plan::Buffer& buffer) { return buffer.persistent() && buffer.name.ends_with(kPendingSuffix); }

// Gradients that wait must be out when the step ends, and otherwise leave beside the update. What that may cost is the link's time beyond
// the backward pass of the last micro-batch, what it gains the forward pass of the first: it pays where the link takes less than both.
// Ranks that split layers have less of either.
bool leave_in_time(const LoweringInputs& inputs) {
  const graph::Graph& graph = inputs.programs.front().graph;
  const strategy::Strategy& strategy = inputs.strategy;
  if (strategy.offload.gradients.anything()) return true;  // they go out anyway
  double bytes = 0.0;
  for (const graph::Parameter& parameter : graph.parameters)
    bytes += parameter.gradient.valid() ? static_cast<double>(graph.values[parameter.gradient].type.bytes()) : 0.0;
  if (strategy.zero > 0) bytes /= static_cast<double>(strategy.shards());
  double operations = 0.0;
  for (const graph::Node& node : graph.nodes) {
    if (!graph::runs_per_micro_batch(node.phase)) continue;
    operations += ops::definition_of(node.op).work(node.op, graph.types(node.inputs), graph.types(node.outputs)).flops;
  }
  return bytes < inputs.link * operations;
}

// The optimizer whose updates wait for preludes; empty: none does.
std::string_view rule_with_preludes(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes) {
    if (ops::has_prelude(node.op)) return std::get<ops::Update>(node.op).rule->name;
  }
  return {};
}

}  // namespace

HostUpdate host_update(const LoweringInputs& inputs) {
  const graph::Graph& graph = inputs.programs.front().graph;
  const strategy::Strategy& strategy = inputs.strategy;
  if (!strategy.offload.optimizer.anything() || !has_update(graph)) return HostUpdate::none;
  if (graph.pending.valid()) return HostUpdate::late;
  if (!strategy::synchronous(strategy)) return HostUpdate::behind;
  if (const std::string_view rule = rule_with_preludes(graph); !rule.empty()) {
    if (strategy.carry_update != strategy::CarryUpdate::always) return HostUpdate::behind;
    base::not_legal(
        "\"carry_update\" is \"always\", but \"{}\" looks at whole parameters before it updates them; use \"auto\" or \"never\"", rule);
  }
  if (strategy.carry_update == strategy::CarryUpdate::always) return HostUpdate::under_forward;
  // Its updates are where they are with more steps to a flush.
  if (strategy::made_without_flush(strategy)) return HostUpdate::behind;
  if (!needs_verdict(graph)) return HostUpdate::under_backward;
  // Rows of a table on disk go back there before the next step brings others.
  const bool waits = strategy.carry_update != strategy::CarryUpdate::never && strategy.embedding_rows == strategy::EmbeddingRows::whole;
  if (!waits) return HostUpdate::behind;
  // A drive would take the gradients too; a processor that is device and host at once has nothing to do beside the update.
  const bool can = inputs.host_beside && strategy.offload.optimizer.disk == 0.0 && !strategy::gathers_parts(strategy);
  return can && leave_in_time(inputs) ? HostUpdate::under_forward : HostUpdate::behind;
}

std::string update_note(const graph::Graph& graph, HostUpdate update, const plan::RankClass& fullest) {
  switch (update) {
    case HostUpdate::none: return "";
    case HostUpdate::late: return "the host updates with the gradients of the step before, while the device computes the next ones";
    case HostUpdate::under_backward: {
      const base::Bytes buckets = bytes_of(fullest, [](const plan::Buffer& buffer) { return buffer.name.starts_with(kBucketName); });
      const std::string through =
          buckets.count == 0 ? "" : fmt::format("; gradients pass through {} of its memory", base::to_string(buckets));
      return "the host updates under the backward pass, behind each block" + through;
    }
    case HostUpdate::under_forward:
      return fmt::format(
          "the host updates under the next step's forward pass, ahead of each block; gradients wait for it in {} of a rank's slower tiers "
          "(\"carry_update\": \"never\" needs less memory)",
          base::to_string(bytes_of(fullest, waits)));
    case HostUpdate::behind: break;
  }
  if (const std::string_view rule = rule_with_preludes(graph); !rule.empty())
    return fmt::format("the host updates behind the backward pass: {} looks at whole parameters before it updates them", rule);
  if (needs_verdict(graph)) {
    return "the host updates behind the backward pass: clipping and loss scaling wait for all gradients (\"clip\": 0 without fp16 does "
           "not)";
  }
  return "the host updates behind the backward pass: micro-batches under way use other versions of the weights";
}

void LeavingCopies::before(const Piece& piece) {
  if (piece.stream == plan::StreamKind::compute) {
    for (auto& [kind, line] : lines_) {
      if (line.since == line.moments.size()) continue;
      if (line.since > 0) streams_.settle(kind, line.moments[line.since - 1]);
      line.since = line.moments.size();
    }
  }
  if (leaves(piece)) lines_[piece.stream].moments.push_back(streams_.moments());
  if (brings(piece)) brought_ = true;
  if (piece.stream == plan::StreamKind::host_compute) brought_ = false;
}

bool LeavingCopies::must_pause(const Piece& piece) const {
  const bool begins = brings(piece) || (piece.phase == graph::Phase::update && piece.stream == plan::StreamKind::host_compute && !brought_);
  return begins && std::any_of(lines_.begin(), lines_.end(),
                               [](const auto& line) { return line.second.moments.size() > line.second.since + kGroupsUnderWay; });
}

void LeavingCopies::pause() {
  for (auto& [kind, line] : lines_) {
    if (line.moments.size() <= line.since + kGroupsUnderWay) continue;
    line.since = line.moments.size() - kGroupsUnderWay;
    streams_.settle(kind, line.moments[line.since - 1]);
  }
}

}  // namespace plimsoll::lowering
