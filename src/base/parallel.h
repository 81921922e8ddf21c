// A few threads for work of milliseconds, such as copying hundreds of megabytes. Kernels have their own, which do not start
// and end with every call.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll::base {

// How many threads help to move so many bytes: memory's rate is used up by a few, and a small amount is moved before a
// second thread has started.
std::int64_t threads_for_bytes(std::int64_t bytes);

// work(0), ... work(threads - 1), the first on this thread, and waits for all. Then the failure of the lowest number, if
// there was one, is thrown.
void in_parallel(std::int64_t threads, const std::function<void(std::int64_t thread)>& work);

}  // namespace plimsoll::base
