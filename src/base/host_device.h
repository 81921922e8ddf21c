// Marks the few functions that host and device code share (counters, exact sums, rules of a step), so that each has one definition and
// the tests of the host speak for both. nvcc compiles them for both sides; any other compiler sees plain functions.
#pragma once

#ifdef __CUDACC__
#define PLIMSOLL_HOST_DEVICE __host__ __device__
#else
#define PLIMSOLL_HOST_DEVICE
#endif
