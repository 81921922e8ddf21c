// The search for the best choice of a space.
//
// Best first, by bounds: the shapes of the space come with bounds of their own; the most promising is filled in, its choices come
// with closer bounds; the most promising choice is evaluated exactly. Once no bound is below the best exact time, that choice is the
// best there is. Ties go to what the space visits first, so the answer is the same on every machine and every run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/estimate.h"
#include "planner/space.h"

namespace plimsoll::planner {

struct Progress {
  std::int64_t shapes = 0;     // in the space
  std::int64_t bounded = 0;    // choices with bounds
  std::int64_t evaluated = 0;  // exactly
  double best_seconds = 0.0;   // zero: none fits so far
};

struct SearchOptions {
  bool prune = true;                                    // false: every choice of the space is evaluated
  std::int64_t most_pieces = std::int64_t{60'000'000};  // of schedules that are run, so that a search ends at the same place everywhere
  bool first_that_fits = false;                         // whether anything fits is all that is asked
  double within_seconds = 0.0;                          // a step that takes longer is no answer; 0: any is
  bool near_misses = false;                             // also look at what exceeds the device by a little
  std::int64_t meshes = 1;                              // go on behind the best until so many divisions of the ranks have a candidate
  std::function<bool()> stop = {};                      // asked between evaluations: the caller has no time left
  std::function<void(const Progress&)> progress = {};
};

// Estimates of memory are this much too high at times: who can say more closely looks at what exceeds a device by no more.
inline constexpr double kNearMiss = 0.15;

struct Found {
  std::vector<Candidate> candidates;  // those that were evaluated and fit, best first
  std::vector<Candidate> near;        // those that exceed the device by `kNearMiss` at most, fastest first; each with its reason
  Progress progress;
  bool complete = true;    // the first is proven to be the best of the space
  Bytes least_device;      // the least that any choice needs, where none fits
  std::string least_name;  // and that choice
  std::string elsewhere;   // why a choice that fits its device cannot be had: memory of hosts, disks; where none fits
  std::string illegal;     // the first reason that a choice was refused for, where none fits
};

Found search(Estimator& estimator, const Space& space, const SearchOptions& options = {});

// What was found of a choice more closely than by estimates: seconds of a step, and of those in which nothing was computed while data
// moved.
struct Measured {
  double seconds = 0.0;
  double exposed = 0.0;
};
struct MeasuredPair {
  Measured slower;
  Measured best;
};

// How much slower one of two is and where it loses most, in words.
std::string why_slower(const Estimate& slower, const Estimate& best, const std::optional<MeasuredPair>& measured = {});

// Why each neighbour of the best choice is not better: it does not fit, cannot be run, or takes longer and where.
struct Verdict {
  std::string what;
  std::string reason;
  Candidate candidate;
  bool simulated = false;  // its seconds are of its plan, not of an estimate
};
std::vector<Verdict> explain(Estimator& estimator, const Space& space, const Candidate& best);

}  // namespace plimsoll::planner
