#include "cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace plimsoll::cluster {

namespace {

constexpr std::int64_t kMostDevices = 100'000;  // of a node

// What ranks of one processor reach when they exchange through its memory, where nobody has measured it.
constexpr double kMemoryLink = 4e9;
constexpr double kMemoryLatency = 20e-6;

bool positive(double rate) { return std::isfinite(rate) && rate > 0.0; }
bool not_negative(double rate) { return std::isfinite(rate) && rate >= 0.0; }

void add_device_problems(const Device& device, std::vector<std::string>& problems) {
  const auto need = [&](bool good, std::string_view key, double found, std::string_view expected) {
    if (!good) problems.push_back(fmt::format("device.{} is {}, expected {}", key, found, expected));
  };
  need(device.memory.count > 0, "memory", static_cast<double>(device.memory.count), "more than 0 bytes");
  need(device.reserve.count >= 0 && device.reserve < device.memory, "reserve", static_cast<double>(device.reserve.count),
       "less than the memory");
  need(positive(device.bandwidth), "bandwidth", device.bandwidth, "bytes a second, more than 0");
  need(positive(device.vector_rate), "vector_rate", device.vector_rate, "operations a second, more than 0");
  need(not_negative(device.launch), "launch", device.launch, "seconds, 0 or more");
  need(not_negative(device.round_trip), "round_trip", device.round_trip, "seconds, 0 or more");
  need(not_negative(device.watts), "watts", device.watts, "0 or more");
  need(device.units > 0, "units", static_cast<double>(device.units), "1 or more");
  need(device.collective_units >= 0 && device.collective_units < device.units, "collective_units",
       static_cast<double>(device.collective_units), "0 or more, and fewer than the units");
  need(device.cores >= 0, "cores", static_cast<double>(device.cores), "0 or more");
  const auto share = [](double value) { return value > 0.0 && value <= 1.0; };
  need(share(device.matrix_share), "matrix_share", device.matrix_share, "a share between 0 and 1");
  need(share(device.sustained_share), "sustained_share", device.sustained_share, "a share between 0 and 1");
  need(share(device.bandwidth_share), "bandwidth_share", device.bandwidth_share, "a share between 0 and 1");
  if (device.rates.empty()) problems.emplace_back("device.rates is empty, expected operations a second for at least one element type");
  for (const auto& [dtype, rate] : device.rates) {
    need(positive(rate), fmt::format("rates.{}", base::name_of(dtype)), rate, "operations a second, more than 0");
    need(base::is_float(dtype), fmt::format("rates.{}", base::name_of(dtype)), rate, "a type of floating-point numbers");
  }
  for (const Sample& sample : device.samples) {
    const bool shaped = std::all_of(sample.extents.begin(), sample.extents.end(), [](std::int64_t extent) { return extent >= 1; });
    if (positive(sample.seconds) && shaped && sample.threads >= 0) continue;
    problems.push_back(
        fmt::format("a sample of \"{}\" took {} seconds with {} threads on {} x {} x {}, expected more than 0 seconds, 0 threads or "
                    "more and a shape of 1 or more",
                    sample.op, sample.seconds, sample.threads, sample.extents[0], sample.extents[1], sample.extents[2]));
    break;
  }
}

// The links that a link's traffic crosses after itself, in order; nullopt when they go in a circle.
std::optional<std::vector<const Link*>> way_of(const Cluster& cluster, const Link& link) {
  std::vector<const Link*> way;
  for (const Link* next = cluster.find(link.over); next != nullptr; next = cluster.find(next->over)) {
    if (next == &link || std::find(way.begin(), way.end(), next) != way.end()) return std::nullopt;
    way.push_back(next);
  }
  return way;
}

void add_link_problems(const Cluster& cluster, std::vector<std::string>& problems) {
  std::set<std::string_view> names;
  std::set<Reach> reaches;
  for (const Link& link : cluster.links) {
    const auto need = [&](bool good, std::string_view key, double found, std::string_view expected) {
      if (!good) problems.push_back(fmt::format("link \"{}\": {} is {}, expected {}", link.name, key, found, expected));
    };
    if (link.name.empty()) problems.emplace_back("a link has no name, expected one for each");
    if (!names.insert(link.name).second) problems.push_back(fmt::format("two links are called \"{}\"", link.name));
    if (link.reach != Reach::none && !reaches.insert(link.reach).second)
      problems.push_back(fmt::format("two links join \"{}\", expected at most one", name_of(link.reach)));
    need(positive(link.bandwidth), "bandwidth", link.bandwidth, "bytes a second, more than 0");
    need(link.share > 0.0 && link.share <= 1.0, "share", link.share, "a share between 0 and 1");
    need(not_negative(link.latency), "latency", link.latency, "seconds, 0 or more");
    need(not_negative(link.sum_rate), "sum_rate", link.sum_rate, "bytes a second, 0 or more");
    need(link.per_node >= 0, "per_node", static_cast<double>(link.per_node), "0 (one for each device) or more");
    if (link.over.empty()) continue;
    if (cluster.find(link.over) == nullptr) {
      problems.push_back(fmt::format("link \"{}\" goes over \"{}\", which is none of the links", link.name, link.over));
    } else if (!way_of(cluster, link)) {
      problems.push_back(fmt::format("link \"{}\" goes over \"{}\" in a circle, expected an end", link.name, link.over));
    }
  }
  const auto needs = [&](bool several, Reach reach, std::string_view between) {
    if (several && cluster.find(reach) == nullptr)
      problems.push_back(fmt::format("no link joins {}; expected one that joins \"{}\"", between, name_of(reach)));
  };
  needs(cluster.devices_per_node > 1, Reach::inside, fmt::format("the {} devices of a node", cluster.devices_per_node));
  needs(cluster.nodes > 1, Reach::across, fmt::format("the {} nodes", cluster.nodes));
}

}  // namespace

const Link* Cluster::find(Reach reach) const {
  const auto found = std::find_if(links.begin(), links.end(), [&](const Link& link) { return link.reach == reach; });
  return found == links.end() ? nullptr : &*found;
}

const Link* Cluster::find(std::string_view link) const {
  const auto found = std::find_if(links.begin(), links.end(), [&](const Link& each) { return !link.empty() && each.name == link; });
  return found == links.end() ? nullptr : &*found;
}

std::string_view name_of(Reach reach) {
  switch (reach) {
    case Reach::none: return "none";
    case Reach::inside: return "inside";
    case Reach::across: return "across";
    case Reach::host: return "host";
    case Reach::disk: return "disk";
  }
  return "";
}

std::string_view name_of(AttentionForm form) { return form == AttentionForm::tiled ? "tiled" : "scores_in_memory"; }

std::vector<std::string> problems_of(const Cluster& cluster) {
  std::vector<std::string> problems;
  const auto need_count = [&](std::string_view key, std::int64_t found, std::int64_t most) {
    if (found < 1 || found > most) problems.push_back(fmt::format("{} is {}, expected 1 to {}", key, found, most));
  };
  need_count("nodes", cluster.nodes, kMostNodes);
  need_count("devices_per_node", cluster.devices_per_node, kMostDevices);
  for (const auto& [name, number] : {std::pair{"price", cluster.price}, {"storage", cluster.storage}, {"restart", cluster.restart}}) {
    if (!not_negative(number)) problems.push_back(fmt::format("{} is {}, expected 0 or more", name, number));
  }
  if (cluster.host.memory.count < 0 || cluster.host.disk.count < 0 || !not_negative(cluster.host.bandwidth))
    problems.emplace_back("host has a negative size or rate, expected 0 or more");
  add_device_problems(cluster.device, problems);
  add_link_problems(cluster, problems);
  return problems;
}

void require_possible(const Cluster& cluster) {
  const std::vector<std::string> problems = problems_of(cluster);
  if (problems.empty()) return;
  base::bad_input("{}: the cluster \"{}\" cannot exist:\n  {}", cluster.origin, cluster.name, fmt::join(problems, "\n  "));
}

Cluster placed(const Cluster& cluster, std::int64_t ranks) {
  Cluster placed = cluster;
  if (cluster.device.cores == 0) return placed;
  placed.devices_per_node = std::max(cluster.devices_per_node, (ranks + cluster.nodes - 1) / cluster.nodes);
  if (placed.find(Reach::inside) == nullptr)
    placed.links.push_back({.name = "memory",
                            .reach = Reach::inside,
                            .bandwidth = std::min(kMemoryLink, cluster.device.bandwidth / 2.0),
                            .latency = kMemoryLatency});
  return placed;
}

double bandwidth_for(const Cluster& cluster, const Link& link, std::int64_t users) {
  const auto share = [&](const Link& each) {
    if (each.per_node == 0) return each.bandwidth * each.share;
    return each.bandwidth * each.share *
           std::min(1.0, static_cast<double>(each.per_node) / static_cast<double>(std::max<std::int64_t>(users, 1)));
  };
  double least = share(link);
  const auto way = way_of(cluster, link);
  PLIMSOLL_CHECK(way, "link {} goes over itself", link.name);
  for (const Link* next : *way) least = std::min(least, share(*next));
  return least;
}

double latency_of(const Cluster& cluster, const Link& link) {
  double latency = link.latency;
  const auto way = way_of(cluster, link);
  PLIMSOLL_CHECK(way, "link {} goes over itself", link.name);
  for (const Link* next : *way) latency += next->latency;
  return latency;
}

}  // namespace plimsoll::cluster
