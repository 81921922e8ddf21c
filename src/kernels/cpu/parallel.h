// How kernels share work among threads: contiguous ranges, one per thread, cut at multiples of a grain. Every kernel
// built on it computes each element in the same way whoever computes it, so results do not depend on the thread count.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace plimsoll::kernels::cpu {

// Calls body(begin, end, thread) for ranges that cover [0, count). `grain` is the least work worth a thread of its own.
template <typename Body>
void parallel_ranges(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t grains = (count + grain - 1) / grain;
  const int wanted = static_cast<int>(std::min<std::int64_t>(threads, grains));
  if (wanted <= 1) {
    body(std::int64_t{0}, count, 0);
    return;
  }
#pragma omp parallel num_threads(wanted)
  {
    // OpenMP may give fewer threads than wanted, never more.
    const int team = omp_get_num_threads();
    const int thread = omp_get_thread_num();
    const std::int64_t begin = grains * thread / team * grain;
    const std::int64_t end = std::min(count, grains * (thread + 1) / team * grain);
    if (begin < end) body(begin, end, thread);
  }
}

}  // namespace plimsoll::kernels::cpu
