#include "cluster/presets.h"

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace plimsoll::cluster {

namespace {

constexpr double kGB = 1e9;
constexpr double kTFlops = 1e12;
constexpr double kMicrosecond = 1e-6;

// Power is a device's with its share of the node's. Units of a collective are the channels that NCCL opens in such a node, each a block
// that has one unit to itself. The 24 of A100s are those of its logs; the 12 of V100s and 16 of H100s are assumed.

// Large models reach about 70 TFLOP/s on it, what is made again counted.
Device v100(std::int64_t gigabytes, double watts) {
  return {.name = fmt::format("V100-{}GB", gigabytes),
          .memory = Bytes{gigabytes << 30},
          .reserve = Bytes{1ll << 30},
          .rates = {{DType::f16, 125 * kTFlops}, {DType::f32, 15.7 * kTFlops}},
          .vector_rate = 15.7 * kTFlops,
          .bandwidth = 900 * kGB,
          .bandwidth_share = 0.7,
          .launch = 4 * kMicrosecond,
          .matrix_share = 0.60,
          .units = 80,
          .collective_units = 12,
          .attention = AttentionForm::scores_in_memory,
          .watts = watts};
}

// The two shares are those with which two published runs of 2021 come out, large products reaching what they do on such a device
// (tests/executor_sim/published_test.cpp).
Device a100() {
  return {.name = "A100-80GB",
          .memory = Bytes{80ll << 30},
          .reserve = Bytes{1ll << 30},
          .rates = {{DType::bf16, 312 * kTFlops}, {DType::f16, 312 * kTFlops}, {DType::f32, 19.5 * kTFlops}},
          .vector_rate = 19.5 * kTFlops,
          .bandwidth = 2039 * kGB,
          .bandwidth_share = 0.58,
          .launch = 4 * kMicrosecond,
          .matrix_share = 0.70,
          .units = 108,
          .collective_units = 24,
          .attention = AttentionForm::scores_in_memory,
          .watts = 810};
}

// Shares as steps of two models reach them on one H200 (bench/results/gpu.md): products alone run at up to 800 TFLOP/s, in a step, where
// one follows the other, at 670, since the power limit lowers the clock.
Device hopper(std::string name, Bytes memory, double bandwidth, double watts) {
  return {.name = std::move(name),
          .memory = memory,
          .reserve = Bytes{1ll << 30},
          .rates = {{DType::bf16, 989 * kTFlops},
                    {DType::f16, 989 * kTFlops},
                    {DType::f8e4m3, 1979 * kTFlops},
                    {DType::f8e5m2, 1979 * kTFlops},
                    {DType::f32, 67 * kTFlops}},
          .vector_rate = 67 * kTFlops,
          .bandwidth = bandwidth,
          .bandwidth_share = 0.78,
          .launch = 3 * kMicrosecond,
          .matrix_share = 0.80,
          .sustained_share = 0.68,
          .units = 132,
          .collective_units = 16,
          .watts = watts};
}

Link inside(double bandwidth) {
  return {.name = "nvlink", .reach = Reach::inside, .bandwidth = bandwidth, .share = 0.8, .latency = 2 * kMicrosecond};
}

Link across(double bandwidth, std::int64_t per_node, double latency) {
  return {.name = "network", .reach = Reach::across, .bandwidth = bandwidth, .share = 0.9, .latency = latency, .per_node = per_node};
}

Cluster dgx_a100() {
  return {.name = "dgx-a100-80g",
          .devices_per_node = 8,
          .device = a100(),
          .host = {.memory = Bytes{2048ll << 30}, .bandwidth = 350 * kGB, .disk = Bytes{30'000'000'000'000}},
          .links = {inside(300 * kGB),
                    across(25 * kGB, 8, 5 * kMicrosecond),
                    {.name = "pcie", .reach = Reach::host, .bandwidth = 26 * kGB, .latency = 10 * kMicrosecond, .per_node = 4},
                    {.name = "nvme", .reach = Reach::disk, .bandwidth = 50 * kGB, .latency = 100 * kMicrosecond, .per_node = 1}}};
}

Cluster hopper_node(std::string name, Device device, double pcie) {
  return {.name = std::move(name),
          .devices_per_node = 8,
          .device = std::move(device),
          .host = {.memory = Bytes{2048ll << 30}, .bandwidth = 500 * kGB, .disk = Bytes{30'000'000'000'000}},
          .links = {inside(450 * kGB),
                    across(50 * kGB, 8, 4 * kMicrosecond),
                    {.name = "pcie", .reach = Reach::host, .bandwidth = pcie, .latency = 8 * kMicrosecond},
                    {.name = "nvme", .reach = Reach::disk, .bandwidth = 50 * kGB, .latency = 100 * kMicrosecond, .per_node = 1}}};
}

Cluster dgx_h100() { return hopper_node("dgx-h100", hopper("H100-80GB", Bytes{80ll << 30}, 3350 * kGB, 1275), 55 * kGB); }

// As measured on one such device: 54 GB/s to pinned memory of the host.
Cluster hgx_h200() { return hopper_node("hgx-h200", hopper("H200-141GB", Bytes{141'000'000'000}, 4800 * kGB, 1250), 54 * kGB); }

// A device alone moves 12 GB/s to its host; all sixteen together 65 to memory and 26.5 to the disks.
Cluster dgx2() {
  return {.name = "dgx2-v100-32g",
          .devices_per_node = 16,
          .device = v100(32, 625),
          .host = {.memory = Bytes{1536ll << 30}, .bandwidth = 150 * kGB, .disk = Bytes{28'000'000'000'000}},
          .links = {inside(150 * kGB),
                    across(12.5 * kGB, 8, 5 * kMicrosecond),
                    {.name = "host bus", .bandwidth = 65 * kGB, .per_node = 1},
                    {.name = "pcie", .reach = Reach::host, .bandwidth = 12 * kGB, .latency = 10 * kMicrosecond, .over = "host bus"},
                    {.name = "nvme",
                     .reach = Reach::disk,
                     .bandwidth = 26.5 * kGB,
                     .latency = 100 * kMicrosecond,
                     .per_node = 1,
                     .over = "host bus"}}};
}

Cluster p3_16xlarge() {
  return {.name = "p3.16xlarge",
          .devices_per_node = 8,
          .device = v100(16, 450),
          .host = {.memory = Bytes{488ll << 30}, .bandwidth = 100 * kGB},
          .links = {inside(150 * kGB),
                    across(3.125 * kGB, 1, 20 * kMicrosecond),
                    {.name = "pcie", .reach = Reach::host, .bandwidth = 11 * kGB, .latency = 10 * kMicrosecond, .per_node = 4}},
          .price = 3.06};
}

struct Known {
  std::string_view name;
  Cluster (*make)();
};

constexpr std::array<Known, 5> kKnown{
    {{"dgx-a100-80g", dgx_a100}, {"dgx-h100", dgx_h100}, {"hgx-h200", hgx_h200}, {"dgx2-v100-32g", dgx2}, {"p3.16xlarge", p3_16xlarge}}};

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Known& known : kKnown) names.push_back(known.name);
  return names;
}

NamedCount name_and_nodes_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {.name = std::string(text)};
  NamedCount parts{.name = std::string(text.substr(0, colon))};
  const std::string_view count = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), parts.nodes);
  if (error != std::errc{} || end != count.data() + count.size() || parts.nodes < 1 || parts.nodes > kMostNodes)
    base::bad_input("found \"{}\", expected a cluster's name and a count of nodes from 1 to {}, as in \"{}:4\"", text, kMostNodes,
                    parts.name);
  return parts;
}

Cluster preset(std::string_view text) {
  const NamedCount wanted = name_and_nodes_of(text);
  for (const Known& known : kKnown) {
    if (known.name != wanted.name) continue;
    Cluster cluster = known.make();
    cluster.nodes = wanted.nodes;
    cluster.origin = "preset";
    return cluster;
  }
  const std::vector<std::string_view> names = preset_names();
  const std::string_view near = base::nearest_name(wanted.name, names);
  base::bad_input("found the unknown cluster \"{}\",{} expected one of {}, \"this\", or a .json file", wanted.name,
                  near.empty() ? "" : fmt::format(" did you mean \"{}\"?", near), fmt::join(names, ", "));
}

}  // namespace plimsoll::cluster
