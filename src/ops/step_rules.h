// What the operators on the step scalars do, once for all backends: a device runs them in a kernel of one thread, so that no step
// waits for the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/forms/random_rounding.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

PLIMSOLL_HOST_DEVICE inline void begin_step(StepScalars& scalars) {
  scalars.gradient_norm = 0.0f;
  scalars.gradient_multiplier = 1.0f;
  scalars.skip = 0;
  scalars.rows_wanted = 0;
  scalars.squared_norm = {};
  scalars.loss = {};
}

PLIMSOLL_HOST_DEVICE inline void want_rows(StepScalars& scalars, std::int32_t rows) {
  if (rows > scalars.rows_wanted) scalars.rows_wanted = rows;
}

PLIMSOLL_HOST_DEVICE inline void check_rows(StepScalars& scalars, std::int32_t count, std::int64_t bound) {
  if (count > bound) want_rows(scalars, count);
}

// Of the update that a step makes.
PLIMSOLL_HOST_DEVICE inline base::RandomKey rounding_key(const StepScalars& scalars) { return rounding_key(scalars.seed, scalars.updates); }

// The 1e-6 is that of torch.nn.utils.clip_grad_norm_.
PLIMSOLL_HOST_DEVICE inline void prepare_update(StepScalars& scalars, double clip, bool check_finite) {
  const double scale = scalars.loss_scale;
  const double norm = std::sqrt(scalars.squared_norm.value()) / scale;
  scalars.gradient_norm = static_cast<float>(norm);
  scalars.skip = (check_finite && !std::isfinite(norm)) || scalars.rows_wanted > 0 ? 1 : 0;
  double factor = 1.0;
  // False for a norm that is not a number: such a gradient is applied as it is.
  if (clip > 0.0 && clip / (norm + 1e-6) < 1.0) factor = clip / (norm + 1e-6);
  scalars.gradient_multiplier = static_cast<float>(factor / scale);
}

// What FinishStep says of dynamic loss scaling.
struct LossScaling {
  bool dynamic = false;
  std::int64_t window = 1000;
  std::int32_t hysteresis = 2;
  float minimum = 1.0f;
};

// Overflows are forgiven `hysteresis - 1` times between two rises of the scale, then each halves it.
PLIMSOLL_HOST_DEVICE inline void finish_step(StepScalars& scalars, const LossScaling& scaling) {
  if (scalars.skip == 0) ++scalars.updates;
  if (!scaling.dynamic || scalars.rows_wanted > 0) return;
  if (scalars.skip != 0) {
    scalars.good_steps = 0;
    if (scalars.hysteresis > 0) {
      --scalars.hysteresis;
    } else {
      const float halved = scalars.loss_scale / 2.0f;
      scalars.loss_scale = halved < scaling.minimum ? scaling.minimum : halved;
    }
  } else if (++scalars.good_steps >= scaling.window) {
    scalars.loss_scale *= 2.0f;
    scalars.good_steps = 0;
    scalars.hysteresis = scaling.hysteresis - 1;
  }
}

// Everybody adds the same block sums in the same order, so everybody has the same verdict.
PLIMSOLL_HOST_DEVICE inline void merge_scalars(StepScalars& scalars, const StepScalars* all, std::int64_t members, bool norm, bool add) {
  if (!add) scalars.loss = {};
  if (norm && !add) scalars.squared_norm = {};
  for (std::int64_t member = 0; member < members; ++member) {
    if (!add) scalars.loss += all[member].loss;
    if (norm) scalars.squared_norm += all[member].squared_norm;
    want_rows(scalars, all[member].rows_wanted);
  }
}

}  // namespace plimsoll::ops
