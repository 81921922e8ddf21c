#include "cost/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace plimsoll::cost {

namespace {

using Point = std::array<double, 3>;

struct Known {
  Point at{};         // logarithms of the extents
  double pace = 0.0;  // logarithm of seconds for a unit of work
  double seconds = 0.0;
};

constexpr std::size_t kNearest = 6;
constexpr double kSamePlace = 1e-9;

Point place_of(const std::array<std::int64_t, 3>& extents) {
  Point place{};
  for (std::size_t dim = 0; dim < place.size(); ++dim) place[dim] = std::log2(static_cast<double>(std::max<std::int64_t>(extents[dim], 1)));
  return place;
}

double sum(const Point& place) { return place[0] + place[1] + place[2]; }

double distance(const Point& a, const Point& b) {
  double squares = 0.0;
  for (std::size_t dim = 0; dim < a.size(); ++dim) squares += (a[dim] - b[dim]) * (a[dim] - b[dim]);
  return squares;
}

double pace_on_line(std::vector<Known>& known, double at) {
  std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) { return a.at[0] < b.at[0]; });
  const auto after = std::find_if(known.begin(), known.end(), [&](const Known& each) { return each.at[0] >= at; });
  if (after == known.begin()) return known.front().pace;
  if (after == known.end()) return known.back().pace;
  const Known& before = *std::prev(after);
  const double share = (at - before.at[0]) / (after->at[0] - before.at[0]);
  return before.pace + share * (after->pace - before.pace);
}

double pace_nearby(std::vector<Known>& known, const Point& at) {
  const std::size_t count = std::min(kNearest, known.size());
  std::partial_sort(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(count), known.end(),
                    [&](const Known& a, const Known& b) { return distance(a.at, at) < distance(b.at, at); });
  if (distance(known.front().at, at) < kSamePlace) return known.front().pace;
  double weights = 0.0;
  double pace = 0.0;
  for (std::size_t index = 0; index < count; ++index) {
    const double weight = 1.0 / std::pow(distance(known[index].at, at), 1.5);
    weights += weight;
    pace += weight * known[index].pace;
  }
  return pace / weights;
}

// The count of threads, among those that were measured, whose ratio to the wanted one is smallest.
std::int64_t nearest_threads(const std::vector<cluster::Sample>& samples, const SampleQuery& query) {
  std::int64_t nearest = query.threads;
  double least = std::numeric_limits<double>::infinity();
  for (const cluster::Sample& sample : samples) {
    if (sample.op != query.op || sample.dtype != query.dtype) continue;
    const auto logarithm = [](std::int64_t threads) { return std::log2(static_cast<double>(std::max<std::int64_t>(threads, 1))); };
    const double apart = std::abs(logarithm(sample.threads) - logarithm(query.threads));
    if (apart >= least) continue;
    least = apart;
    nearest = sample.threads;
  }
  return nearest;
}

}  // namespace

std::optional<double> seconds_between(const std::vector<cluster::Sample>& samples, const SampleQuery& query) {
  std::vector<Known> known;
  bool line = true;
  const std::int64_t threads = nearest_threads(samples, query);
  for (const cluster::Sample& sample : samples) {
    if (sample.op != query.op || sample.dtype != query.dtype || sample.threads != threads) continue;
    const Point at = place_of(sample.extents);
    line = line && sample.extents[1] == 1 && sample.extents[2] == 1;
    known.push_back({.at = at, .pace = std::log2(sample.seconds) - sum(at), .seconds = sample.seconds});
  }
  if (known.empty()) return std::nullopt;
  const Point at = place_of(query.extents);
  double least = known.front().seconds;
  for (const Known& each : known) least = std::min(least, each.seconds);
  const double seconds = std::exp2(sum(at) + (line ? pace_on_line(known, at[0]) : pace_nearby(known, at)));
  const double scale =
      threads == query.threads || query.threads <= 0 ? 1.0 : static_cast<double>(threads) / static_cast<double>(query.threads);
  return scale * (line ? std::max(seconds, least) : seconds);
}

}  // namespace plimsoll::cost
