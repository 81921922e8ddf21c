// The third executor: it runs the very plan that the others run, on a virtual clock.
//
// Streams, tokens, messages and collectives are those of the plan. Links, disks and a processor's cores are shared: transfers that
// are under way at the same time slow each other down, and so do ranks with fewer cores than threads.
//
// Ranks that behave alike are simulated once: those of a class differ in their places on axes where all do the same, such as data. A rank
// that is slower than others, or jitter, makes such places differ; then each of these is simulated for itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "executor/sim/script.h"
#include "plan/plan.h"

namespace plimsoll::executor::sim {

struct Straggler {
  std::int32_t rank = 0;
  double factor = 1.0;  // its computation takes so many times as long
};

struct Options {
  std::string_view program = "train";
  double jitter = 0.0;  // standard deviation of the time of a computation, as a share of it
  std::uint64_t seed = 1;
  std::vector<Straggler> stragglers{};
  bool spans = false;  // keep when every call ran
  // The plan has one class for all tensor places of a pipe place (an outline): they meet without waiting.
  bool tensor_folded = false;
};

// When a call ran.
struct Span {
  std::uint32_t lane = 0;
  std::uint32_t routine = 0;  // names it
  std::int32_t micro_batch = 0;
  double begin = 0.0;
  double end = 0.0;
};

// Ranks that behaved alike.
struct RankTimes {
  std::string name;            // "pipe 3", "pipe 3, data 5"
  std::size_t rank_class = 0;  // in the plan
  std::int64_t ranks = 1;      // how many
  std::int32_t first_rank = 0;
  double computing = 0.0;
  double exposed = 0.0;  // nothing computed while data moved
  double waiting = 0.0;  // nothing computed and nothing moved: for others, or at the end
  std::vector<plan::StreamKind> lanes{};
  std::vector<Span> spans{};
};

struct Result {
  double seconds = 0.0;
  std::int64_t ranks = 1;
  std::vector<RankTimes> times;
  std::vector<std::string> routines;  // names, for spans
  LinkBytes bytes{};                  // sent by all ranks together, by kind of link
  double model_flops = 0.0;           // of all ranks together; without what is made again
  double hardware_flops = 0.0;

  double bubble_fraction() const;
  double exposed_fraction() const;
  double model_tflops_per_device() const;
  double hardware_tflops_per_device() const;
};

Result simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const Options& options = {});
// The same of a script whose prices somebody has changed.
Result simulate(const Script& script, const cluster::Cluster& cluster, const Options& options = {});

}  // namespace plimsoll::executor::sim
