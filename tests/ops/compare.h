// What a kernel gave against what the reference gives on the same inputs: max|difference| is measured against the largest
// magnitude of the result, with a bound by the coarsest element type that takes part.
#pragma once

#include <vector>

#include "kernels/cpu/reference/compute.h"
#include "ops/cases.h"
#include "ops/run_case.h"

namespace plimsoll::op_cases {

// Differences are reported as test failures.
void expect_near(const std::vector<Bytes>& found, const kernels::cpu::reference::Results& expected, const Case& test);

}  // namespace plimsoll::op_cases
