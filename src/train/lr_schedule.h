// The learning rate of each step.
#pragma once

#include <cstdint>

#include "config/run.h"

namespace plimsoll::train {

// `step` counts from 1 to run.steps. Warm-up rises, evenly or with the step's logarithm, to the full rate at step `warmup`; constant stays
// there; linear and cosine fall to min_ratio of it at the last step; wsd stays, then falls linearly over the last
// `decay` steps.
double learning_rate(const config::Run& run, std::int64_t step);

}  // namespace plimsoll::train
