// What exists to train on: nodes of equal devices, the memory of their hosts and disks, and the links between all of them.
//
// Everything is a rate, a size or a name; nothing here computes a price (cost does). A cluster comes from a preset
// (presets.h), from a JSON file (file.h) or from measuring this machine, and is the same kind of data in each case.
//
// Links. A device has one link of each kind to itself unless the link says how many of them a node has (`per_node`): then all
// devices of the node share those. A link's traffic may also cross another link (`over`): a disk is reached over the host link.
//
//   reach     joins
//   inside    two devices of a node
//   across    devices of different nodes
//   host      a device and its host's memory
//   disk      a device's host and its disk
//   (none)    what other links go over: a switch, a memory bus
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace plimsoll::cluster {

using base::Bytes;

inline constexpr std::int64_t kMostNodes = 10'000'000;
using base::DType;

// How long one operator took on one shape, as measured.
struct Sample {
  std::string op{};  // its name, as in ops::name_of
  DType dtype = DType::f32;
  std::int64_t threads = 0;               // 0: the device has none
  std::array<std::int64_t, 3> extents{};  // what cost::extents_of says of the operator: the shape its speed depends on
  double seconds = 0.0;

  bool operator==(const Sample&) const = default;
};

// How attention is computed: tile by tile, or with all scores written to memory and read back.
enum class AttentionForm : std::uint8_t { tiled, scores_in_memory };

struct Device {
  std::string name{};
  Bytes memory{};
  Bytes reserve{};                    // of the memory, what contexts, libraries and communicators take
  std::map<DType, double> rates{};    // floating-point operations a second in matrix products, by element type
  double vector_rate = 0.0;           // the same outside of them
  double bandwidth = 0.0;             // of the memory, bytes a second
  double bandwidth_share = 0.85;      // of it, what a kernel that only streams reaches
  double launch = 0.0;                // seconds that an instruction takes at least
  double matrix_share = 0.8;          // of the rate, what a large matrix product reaches
  double sustained_share = 1.0;       // of the rate, what products one after the other reach at most: the power limit lowers the clock
  std::int64_t units = 1;             // processors that the tiles of a product are dealt out to
  std::int64_t collective_units = 0;  // of them, those that a collective keeps busy while it runs: what computes beside it has the rest
  std::int64_t cores = 0;             // a processor whose cores all ranks of the node share; 0: a device of one rank alone
  double round_trip = 0.0;            // seconds of a word from one core to another and back, as measured; says where the rates were taken
  AttentionForm attention = AttentionForm::tiled;
  double watts = 0.0;
  std::vector<Sample> samples{};  // where there are some for an operator, they count instead of the rates

  // Of its computing, what is left beside a collective.
  double beside_collective() const { return 1.0 - static_cast<double>(collective_units) / static_cast<double>(units); }
  bool operator==(const Device&) const = default;
};

enum class Reach : std::uint8_t { none, inside, across, host, disk };

struct Link {
  std::string name{};
  Reach reach = Reach::none;
  double bandwidth = 0.0;     // bytes a second in one direction
  double share = 1.0;         // of it, what a long transfer reaches
  double latency = 0.0;       // seconds
  std::int64_t per_node = 0;  // how many a node has, shared by its devices; 0: every device has one
  std::string over{};         // another link that its traffic crosses too
  bool both_ways = true;      // carries as much in the other direction at the same time
  double sum_rate = 0.0;      // bytes a second at which what arrives is added up; 0: beside the transfer

  bool operator==(const Link&) const = default;
};

// Of a node, beside its devices.
struct Host {
  Bytes memory{};
  double bandwidth = 0.0;  // read and written by kernels that run there
  Bytes disk{};

  bool operator==(const Host&) const = default;
};

struct Cluster {
  std::string name{};
  std::string origin{};  // "preset", the file's path, "measured here on ..."
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  Device device{};
  Host host{};
  std::vector<Link> links{};
  double price = 0.0;    // of a device for an hour, in whatever currency; 0: not known
  double storage = 0.0;  // bytes a second that all nodes together save outside of them, where a lost node takes nothing along; 0: not known
  double restart = 0.0;  // seconds from a failure to the next step; 0: not known

  std::int64_t devices() const { return nodes * devices_per_node; }
  const Link* find(Reach reach) const;  // nullptr: there is none
  const Link* find(std::string_view link) const;
  bool operator==(const Cluster&) const = default;
};

std::string_view name_of(Reach reach);
std::string_view name_of(AttentionForm form);

// Every way in which the description is impossible: no devices, no link where there are several, rates that are not positive,
// links that go over each other in a circle. Empty for a good one.
std::vector<std::string> problems_of(const Cluster& cluster);

// bad_input with all problems and the cluster's origin.
void require_possible(const Cluster& cluster);

// The cluster as `ranks` are started on it. A processor runs as many ranks as it is given, so they are dealt out to the nodes evenly, and
// those of one node reach each other through its memory where no link says how fast. Devices of one rank each stay as they are.
Cluster placed(const Cluster& cluster, std::int64_t ranks);

// What one of `users` devices of a node that use the link at once reaches on it in one direction, links that it goes over included.
double bandwidth_for(const Cluster& cluster, const Link& link, std::int64_t users);

// Until the first byte is there, links that it goes over included.
double latency_of(const Cluster& cluster, const Link& link);

}  // namespace plimsoll::cluster
