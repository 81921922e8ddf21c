// Bytes by kind of link, and the links that a step waits for, against a count over every rank, every message and every hop of every ring.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "cost/transfer.h"
#include "executor_sim/layouts.h"
#include "strategy/legality.h"

namespace plimsoll::executor::sim {
namespace {

using cluster::Cluster;
using cluster::Reach;

Cluster nodes_of(std::int64_t devices, std::int64_t nodes, double latency) {
  Cluster cluster = cluster::preset("dgx-h100");
  cluster.name = "test";
  cluster.nodes = nodes;
  cluster.devices_per_node = devices;
  cluster.links = {{.name = "near", .reach = Reach::inside, .bandwidth = 100e9, .latency = latency / 10.0},
                   {.name = "far", .reach = Reach::across, .bandwidth = 10e9, .latency = latency}};
  return cluster;
}

struct Counted {
  double inside = 0.0;
  double across = 0.0;

  void add(const Cluster& cluster, std::int64_t from, std::int64_t to, double bytes) {
    (from / cluster.devices_per_node == to / cluster.devices_per_node ? inside : across) += bytes;
  }
};

// Every hop of one collective of a group.
void count_ring(const Cluster& cluster, const std::vector<std::int32_t>& members, double each, Counted& counted) {
  for (std::size_t index = 0; index < members.size(); ++index)
    counted.add(cluster, members[index], members[(index + 1) % members.size()], each);
}

void count_collective(const Cluster& cluster, ops::CollectiveKind kind, cost::Form form, const std::vector<std::int32_t>& members,
                      double bytes, Counted& counted) {
  const double turns = kind == ops::CollectiveKind::all_reduce ? 2.0 : 1.0;
  const auto share = [](std::size_t count) { return static_cast<double>(count - 1) / static_cast<double>(count); };
  std::map<std::int64_t, std::vector<std::int32_t>> by_node;
  for (const std::int32_t rank : members) by_node[rank / cluster.devices_per_node].push_back(rank);
  if (form == cost::Form::ring) {
    count_ring(cluster, members, turns * share(members.size()) * bytes, counted);
  } else if (form == cost::Form::tree) {
    // A chain in each node; the heads of the chains are joined by a tree.
    for (const auto& [node, ranks] : by_node) {
      for (std::size_t index = 1; index < ranks.size(); ++index) counted.add(cluster, ranks[index], ranks[index - 1], turns * bytes);
      if (node != by_node.begin()->first) counted.add(cluster, ranks[0], by_node.begin()->second[0], turns * bytes);
    }
  } else {
    const std::size_t local = by_node.begin()->second.size();
    for (std::size_t seat = 0; seat < local; ++seat) {
      std::vector<std::int32_t> alike;
      for (const auto& [node, ranks] : by_node) alike.push_back(ranks.at(seat));
      count_ring(cluster, alike, turns * share(alike.size()) * bytes / static_cast<double>(local), counted);
    }
    for (const auto& [node, ranks] : by_node) count_ring(cluster, ranks, turns * share(local) * bytes, counted);
  }
}

// Walks the program of every rank. A collective is counted when its group's first rank comes to it.
Counted count(const plan::Plan& plan, const Cluster& cluster) {
  Counted counted;
  for (std::int32_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
    const plan::RankClass& rank_class = plan::class_of(plan, rank);
    const plan::Program& program = rank_class.programs[0];
    for (const plan::Stream& stream : program.streams) {
      for (const plan::Call& call : stream.calls) {
        for (const plan::Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions) {
          if (const auto* message = std::get_if<plan::Message>(&instruction); message != nullptr && !message->op.receive) {
            const base::TensorType type{message->op.dtype, message->op.shape};
            counted.add(cluster, rank, plan::other_end(plan.mesh, rank, message->op, call.micro_batch), static_cast<double>(type.bytes()));
          }
          const auto* collective = std::get_if<plan::Collective>(&instruction);
          if (collective == nullptr) continue;
          const std::vector<std::int32_t> members = plan.mesh.group(collective->op.axis, rank);
          if (members.front() != rank) continue;
          double bytes = 0.0;
          for (std::size_t index = 0; index < collective->inputs.size(); ++index) {
            const base::TensorType& given = collective->inputs[index].type;
            bytes += static_cast<double>(std::max(given.bytes(), collective->outputs[index].type.bytes()) -
                                         collective->op.first * base::size_of(given.dtype));
          }
          // All groups of the axis, since the form depends on who else leaves the node.
          std::vector<std::vector<std::int32_t>> groups;
          for (std::int32_t other = 0; other < plan.mesh.ranks(); ++other) {
            if (!plan.mesh.sits_on(collective->op.axis, other)) continue;
            const std::vector<std::int32_t> group = plan.mesh.group(collective->op.axis, other);
            if (group.front() == other) groups.push_back(group);
          }
          const auto index = std::find(groups.begin(), groups.end(), members) - groups.begin();
          const cost::Group group = cost::groups_of(cluster, plan.mesh.ranks(), groups)[static_cast<std::size_t>(index)];
          const cost::Transfer priced = cost::collective(cluster, collective->op.kind, bytes, group);
          count_collective(cluster, collective->op.kind, priced.form, members, bytes, counted);
        }
      }
    }
  }
  return counted;
}

TEST(Links, BytesAreThoseOfEveryRankOnItsNode) {
  std::mt19937 random(7);
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  double across = 0.0;
  for (int trial = 0; trial < 120; ++trial) {
    Layout layout;
    layout.layers = 6;
    layout.strategy.tensor = one_of({1, 1, 2, 4});
    layout.strategy.data = one_of({1, 2, 3, 4, 6});
    layout.strategy.pipe = one_of({1, 2, 3, 5});
    layout.micro_batches = static_cast<std::int32_t>(one_of({1, 2, 6}));
    layout.tied = one_of({0, 1}) == 1;
    layout.strategy.zero = layout.strategy.data > 1 ? one_of({0, 1, 2, 3}) : 0;
    if (layout.strategy.zero > 0 && layout.strategy.data % 2 == 0 && layout.strategy.data > 2) layout.strategy.zero_group = one_of({0, 2});
    layout.strategy.sequence_parallel = layout.strategy.tensor > 1 && one_of({0, 1}) == 1;
    if (layout.strategy.pipe > 1) layout.strategy.schedule = one_of({0, 1}) == 1 ? "1f1b" : "gpipe";
    const std::int64_t devices = one_of({1, 2, 3, 4, 5, 6, 8});
    const std::int64_t ranks = layout.strategy.ranks();
    const Cluster cluster = nodes_of(devices, (ranks + devices - 1) / devices, one_of({0, 1}) == 1 ? 1e-4 : 0.0);
    SCOPED_TRACE(strategy::describe(layout.strategy) + " on nodes of " + std::to_string(devices));
    const plan::Plan plan = whole_plan(layout);
    const Counted expected = count(plan, cluster);
    const Result whole = simulate(plan, cluster);
    const double bound = 1e-9 * (expected.inside + expected.across) + 1e-3;
    EXPECT_NEAR(whole.bytes[static_cast<std::size_t>(LinkClass::inside)], expected.inside, bound);
    EXPECT_NEAR(whole.bytes[static_cast<std::size_t>(LinkClass::across)], expected.across, bound);
    const Result folded = simulate(outline_plan(layout), cluster, {.tensor_folded = true});
    // Tensor places differ in a few small tensors, and an outline has one place for all.
    EXPECT_NEAR(folded.bytes[static_cast<std::size_t>(LinkClass::across)], expected.across, 0.01 * (expected.inside + expected.across));
    EXPECT_NEAR(folded.seconds, whole.seconds, 0.02 * whole.seconds);
    across += expected.across;
    if (HasFailure()) return;
  }
  EXPECT_GT(across, 0.0);
}

// 32 stages on four nodes of eight: three of 31 boundaries are between nodes, and a slow network is waited for.
TEST(Links, OnePipelineOverNodesWaitsForTheNetwork) {
  Layout layout;
  layout.layers = 32;
  layout.tied = false;
  layout.micro_batches = 16;
  layout.strategy.pipe = 32;
  const plan::Plan plan = whole_plan(layout);
  const Cluster fast = nodes_of(8, 4, 0.0);
  Cluster slow = fast;
  slow.links[1].bandwidth /= 1000.0;
  const double message = 32.0 * 64 * 2;  // bf16
  const Result result = simulate(plan, fast);
  // Beside the messages there are the sums of norms and losses.
  EXPECT_NEAR(result.bytes[static_cast<std::size_t>(LinkClass::across)] / (2.0 * 16 * 3 * message), 1.0, 0.1);
  EXPECT_NEAR(result.bytes[static_cast<std::size_t>(LinkClass::inside)] / (2.0 * 16 * 28 * message), 1.0, 0.1);
  EXPECT_GT(simulate(plan, slow).seconds, result.seconds + 16 * message / slow.links[1].bandwidth);
}

// Of three tensor groups of four on nodes of six, the middle one is on two nodes, and the others wait for it at the step's end.
TEST(Links, ATensorGroupOverNodesIsNotInside) {
  Layout layout;
  layout.strategy.tensor = 4;
  layout.strategy.data = 3;
  layout.micro_batches = 1;
  const plan::Plan plan = whole_plan(layout);
  const Cluster cluster = nodes_of(6, 2, 0.0);
  Cluster slow = cluster;
  slow.links[1].bandwidth /= 1000.0;
  Cluster one_node = nodes_of(12, 1, 0.0);
  EXPECT_GT(simulate(plan, cluster).bytes[static_cast<std::size_t>(LinkClass::across)], 0.0);
  EXPECT_GT(simulate(plan, slow).seconds, 10.0 * simulate(plan, one_node).seconds);
}

}  // namespace
}  // namespace plimsoll::executor::sim
