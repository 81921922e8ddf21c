// Work that shares resources: links, disks, cores. A flow that is alone on all its resources advances one second of its work in a
// second; where the demands on a resource exceed its capacity, each flow on it slows down in proportion.
//
// Only what a change touches is counted again: flows have a version, and an event of an older one is not an end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace plimsoll::executor::sim {

class Flows {
 public:
  using FlowId = std::uint32_t;
  using ResourceId = std::uint32_t;

  struct End {
    double time = 0.0;
    FlowId flow = 0;
    std::uint32_t version = 0;
  };

  ResourceId add_resource(double capacity) {
    resources_.push_back({.capacity = capacity});
    return static_cast<ResourceId>(resources_.size() - 1);
  }

  // Starts a flow of `seconds` of undisturbed work; new ends of all flows that this changes are given to `ends`.
  template <typename Ends>
  FlowId start(double now, double seconds, double demand, const std::vector<ResourceId>& resources, const Ends& ends) {
    FlowId id = static_cast<FlowId>(flows_.size());
    if (free_.empty()) {
      flows_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Flow& flow = flows_[id];
    flow.left = seconds;
    flow.demand = demand;
    flow.rate = 0.0;
    flow.since = now;
    flow.resources = resources;
    for (const ResourceId resource : resources) {
      resources_[resource].flows.push_back(id);
      resources_[resource].demand += demand;
    }
    adjust(now, id, ends);
    return id;
  }

  bool is_current(const End& end) const { return flows_[end.flow].version == end.version; }

  template <typename Ends>
  void finish(double now, FlowId id, const Ends& ends) {
    Flow& flow = flows_[id];
    ++flow.version;
    const std::vector<ResourceId> resources = std::move(flow.resources);
    flow.resources.clear();
    free_.push_back(id);
    for (const ResourceId resource : resources) {
      Resource& shared = resources_[resource];
      std::erase(shared.flows, id);
      shared.demand = shared.flows.empty() ? 0.0 : shared.demand - flow.demand;
      for (const FlowId other : shared.flows) update(now, other, ends);
    }
  }

 private:
  struct Flow {
    double left = 0.0;
    double demand = 1.0;
    double rate = 0.0;
    double since = 0.0;
    std::uint32_t version = 0;
    std::vector<ResourceId> resources{};
  };
  struct Resource {
    double capacity = 1.0;
    double demand = 0.0;
    std::vector<FlowId> flows{};
  };

  template <typename Ends>
  void adjust(double now, FlowId id, const Ends& ends) {
    update(now, id, ends);
    for (const ResourceId resource : flows_[id].resources) {
      for (const FlowId other : resources_[resource].flows) {
        if (other != id) update(now, other, ends);
      }
    }
  }

  template <typename Ends>
  void update(double now, FlowId id, const Ends& ends) {
    Flow& flow = flows_[id];
    double rate = 1.0;
    for (const ResourceId resource : flow.resources) rate = std::min(rate, resources_[resource].capacity / resources_[resource].demand);
    if (rate == flow.rate) return;
    flow.left = std::max(0.0, flow.left - (now - flow.since) * flow.rate);
    flow.since = now;
    flow.rate = rate;
    ends(End{.time = now + flow.left / rate, .flow = id, .version = ++flow.version});
  }

  std::vector<Flow> flows_;
  std::vector<FlowId> free_;
  std::vector<Resource> resources_;
};

}  // namespace plimsoll::executor::sim
