// A program of a plan with a price on every instruction: what the virtual clock plays.
//
//   step      one instruction, or neighbouring ones that only compute: how long it takes when nobody disturbs it, which links it
//             uses, and whom it meets
//   routine   the steps of a procedure, as one class runs it
//   part      the streams of one class: turns (calls) in order, with the tokens between them
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "plan/plan.h"

namespace plimsoll::executor::sim {

// What transfers of one rank share, each in one direction.
enum class Wire : std::uint8_t { none, inside, across, host_out, host_in, disk_out, disk_in };
inline constexpr std::size_t kWires = 7;

enum class LinkClass : std::uint8_t { inside, across, host, disk };
inline constexpr std::size_t kLinkClasses = 4;
inline constexpr std::array<std::string_view, kLinkClasses> kLinkNames{"inside", "across", "host", "disk"};
using LinkBytes = std::array<double, kLinkClasses>;

struct Step {
  enum class Kind : std::uint8_t { work, meet, send, receive, copy } kind = Kind::work;
  bool on_host = false;  // work: of the host beside a device
  Wire wire = Wire::none;
  std::uint32_t axis = 0;  // meet: the others of this axis, by its place in the mesh's table
  ops::Message message{};  // send, receive
  double seconds = 0.0;
  LinkBytes bytes{};  // sent by one rank
};

struct Routine {
  std::string name;
  std::vector<Step> steps;
  double flops = 0.0;  // of matrix products, as published tables count them
};

inline constexpr std::uint32_t kNoToken = std::numeric_limits<std::uint32_t>::max();

struct Turn {
  std::uint32_t routine = 0;
  std::int32_t micro_batch = 0;
  std::uint32_t first_wait = 0;  // in the part's waits
  std::uint32_t waits = 0;
  std::uint32_t signals = kNoToken;
  bool again = false;  // a forward pass run a second time
  double flops = 0.0;  // as published tables count them: a forward pass that is mostly run again counts as a whole one
};

struct Lane {
  plan::StreamKind kind = plan::StreamKind::compute;
  std::vector<Turn> turns;
};

struct Part {
  const plan::RankClass* rank_class = nullptr;
  std::vector<Lane> lanes;
  std::vector<std::uint32_t> waits;
  std::uint32_t tokens = 0;
};

struct Script {
  const plan::Plan* plan = nullptr;
  std::vector<Routine> routines;
  std::vector<Part> parts;  // one for each class of the plan
};

// not_legal where the plan needs a link that the cluster does not have. `plan` must outlive the script.
Script priced(const plan::Plan& plan, std::string_view program, const cluster::Cluster& cluster);

}  // namespace plimsoll::executor::sim
