#include "train/machine/calibrate_moves.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "collectives/local/threads.h"
#include "io/files.h"
#include "observe/clock.h"

namespace plimsoll::train {

namespace {

using base::DType;

constexpr std::size_t kSmallExchange = 4096;
constexpr std::size_t kLargeExchange = std::size_t{16} << 20;
constexpr std::size_t kCopied = std::size_t{64} << 20;
constexpr std::size_t kOnDisk = std::size_t{512} << 20;
constexpr std::size_t kDiskBlock = std::size_t{8} << 20;

// Seconds of one call of `action` by two ranks at once.
double exchanged(const std::function<void(collectives::Group&)>& action, int repeats) {
  double seconds = 0.0;
  collectives::local::run_threads(2, [&](collectives::Transport& transport) {
    const std::unique_ptr<collectives::Group> world = transport.make_world("calibration");
    action(*world);
    world->barrier();
    const double begin = observe::seconds_now();
    for (int repeat = 0; repeat < repeats; ++repeat) action(*world);
    world->barrier();
    if (world->rank() == 0) seconds = (observe::seconds_now() - begin) / repeats;
  });
  return seconds;
}

void measure_exchange(Moves& moves) {
  const auto all_reduce = [](std::size_t bytes) {
    return [bytes](collectives::Group& group) {
      thread_local std::vector<std::byte> data;
      data.resize(bytes);
      group.all_reduce(data, data, DType::f32, collectives::Reduction::sum);
    };
  };
  const auto all_gather = [](std::size_t bytes) {
    return [bytes](collectives::Group& group) {
      thread_local std::vector<std::byte> part;
      thread_local std::vector<std::byte> all;
      part.resize(bytes / 2);
      all.resize(bytes);
      const std::array<std::int64_t, 2> counts{static_cast<std::int64_t>(bytes / 8), static_cast<std::int64_t>(bytes / 8)};
      group.all_gather(part, all, counts, DType::f32);
    };
  };
  moves.small = exchanged(all_gather(kSmallExchange), 2000);
  moves.large = exchanged(all_gather(kLargeExchange), 10);
  moves.summed = exchanged(all_reduce(kLargeExchange), 10);
}

double copy_rate() {
  std::vector<std::byte> from(kCopied, std::byte{1});
  std::vector<std::byte> to(kCopied);
  std::array<double, 5> seconds{};
  for (double& each : seconds) {
    const double begin = observe::seconds_now();
    std::memcpy(to.data(), from.data(), kCopied);
    from[0] = to[kCopied - 1];
    each = observe::seconds_now() - begin;
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(kCopied) / seconds[seconds.size() / 2];
}

// Bytes a second of writing and reading at once, with as many transfers under way as the disk tier has.
double disk_rate(io::FileSystem& file_system, const io::Path& folder) {
  constexpr std::int64_t kTransfers = 8;
  const io::Path path = folder / ".plimsoll-calibration";
  io::remove_tree(file_system, path);
  io::File file(file_system, path, io::OpenMode::scratch);
  file_system.remove(path);
  const auto share = [&](bool write, std::int64_t first, std::int64_t step) {
    const std::unique_ptr<std::byte, void (*)(void*)> block(static_cast<std::byte*>(std::aligned_alloc(4096, kDiskBlock)), std::free);
    std::memset(block.get(), 1, kDiskBlock);
    const std::span<std::byte> data(block.get(), kDiskBlock);
    for (std::int64_t number = first; number < static_cast<std::int64_t>(kOnDisk / kDiskBlock); number += step) {
      const std::int64_t offset = number * static_cast<std::int64_t>(kDiskBlock);
      write ? file.write_at(offset, data) : file.read_exactly(offset, data);
    }
  };
  base::in_parallel(kTransfers, [&](std::int64_t lane) { share(true, lane, kTransfers); });  // so that there is something to read
  const double begin = observe::seconds_now();
  base::in_parallel(kTransfers, [&](std::int64_t lane) { share(lane % 2 == 0, lane / 2, kTransfers / 2); });
  return 2.0 * static_cast<double>(kOnDisk) / (observe::seconds_now() - begin);
}

}  // namespace

Moves measure_moves(io::FileSystem& file_system, const io::Path& scratch, bool ranks) {
  Moves moves;
  if (ranks) measure_exchange(moves);
  moves.copies = copy_rate();
  moves.disk = disk_rate(file_system, scratch);
  return moves;
}

Moves better_of(const Moves& a, const Moves& b) {
  return {.small = std::min(a.small, b.small),
          .large = std::min(a.large, b.large),
          .summed = std::min(a.summed, b.summed),
          .copies = std::max(a.copies, b.copies),
          .disk = std::max(a.disk, b.disk)};
}

cluster::Link exchange_link(const Moves& moves) {
  cluster::Link link{.name = "memory", .reach = cluster::Reach::inside};
  const double large = static_cast<double>(kLargeExchange);
  link.latency = moves.small;
  link.bandwidth = large / 2 / std::max(moves.large - link.latency, 1e-6);
  const double adding = moves.summed - link.latency - large / link.bandwidth;
  if (adding > 0.0) link.sum_rate = large / 2 / adding;
  return link;
}

}  // namespace plimsoll::train
