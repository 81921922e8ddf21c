// Over which links the ranks of a plan meet: every rank has a node, every group and every message the links between its nodes.
//
// Ranks of a class do the same, but they need not lie alike: prices are those of the slowest, since the others wait for it, and bytes
// are counted rank by rank.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "cost/layout.h"
#include "cost/transfer.h"
#include "plan/plan.h"

namespace plimsoll::executor::sim {

class Meetings {
 public:
  Meetings(const plan::Plan& plan, std::string_view program, const cluster::Cluster& cluster);

  // `bytes` of the whole tensor, for a rank of the class: the slowest group's seconds, the mean of what ranks send.
  cost::Transfer collective(const plan::RankClass& rank_class, const ops::Collective& op, double bytes) const;
  cost::Transfer message(const plan::RankClass& rank_class, const ops::Message& op, std::int32_t micro_batch, double bytes) const;

  // All ranks that the class stands for: an outline has one class for all ranks of a pipe place that share out tensors.
  std::vector<std::int32_t> ranks_of(const plan::RankClass& rank_class) const;

 private:
  struct Axis {
    std::vector<cost::Group> groups;
    std::vector<std::int32_t> group_of;  // by rank; -1: none
  };
  // Groups of a class on an axis that lie alike, and how many of its ranks are in them.
  struct Alike {
    cost::Group group;
    std::int64_t ranks = 0;
  };
  // Of the ranks of a class that send to others so far away: those that leave their node, and how many share its links.
  struct Leaving {
    std::int64_t ranks = 0;
    std::int64_t of = 0;
    std::int64_t users = 0;
  };
  const Axis& axis(const ops::Axis& axis) const;
  const std::vector<Alike>& alike(const plan::RankClass& rank_class, const ops::Axis& axis) const;
  const Leaving& leaving(const plan::RankClass& rank_class, std::int32_t offset, bool receive) const;
  void count_users(std::string_view program);

  const plan::Plan& plan_;
  const cluster::Cluster& cluster_;
  bool folded_ = false;
  std::map<std::int64_t, std::int64_t> leaving_;  // by node: ranks that send messages to other nodes
  // What was asked for before: instructions are many, classes and axes few.
  mutable std::map<ops::Axis, Axis> axes_;
  mutable std::map<std::pair<const plan::RankClass*, ops::Axis>, std::vector<Alike>> alike_;
  mutable std::map<std::tuple<const plan::RankClass*, std::int32_t, bool>, Leaving> leaving_of_;
};

}  // namespace plimsoll::executor::sim
