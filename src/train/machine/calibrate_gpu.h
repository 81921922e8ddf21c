// Measures a GPU and the machine around it, as training uses them: operators on the shapes of models, instruction by instruction with
// the device's own clock; copies to and from the host's memory and the update that the host makes, in a step whose optimizer state lies
// there. Nothing is measured that a plan would not run.
#pragma once

#include "cluster/cluster.h"
#include "executor/core/backend.h"
#include "executor/core/timeline.h"
#include "plan/plan.h"
#include "train/machine/calibrate.h"

namespace plimsoll::train {

// The device and its links to the host; `around` has the host and the disk as measured without it.
cluster::Cluster calibrate_gpu(const executor::Backend& gpu, cluster::Cluster around, const CalibrationOptions& options);

// What one step of a program took, instruction by instruction.
struct InstructionTime {
  const plan::Instruction* instruction = nullptr;
  plan::StreamKind stream = plan::StreamKind::compute;
  double seconds = 0.0;
  double part = 1.0;  // of an event, where a kernel took several instructions together
};

// Events of a timeline by the instructions that they are of, where calls were issued one after the other: each call's instructions, then
// the call. Neighbours that one kernel took together share its time by their bytes.
std::vector<InstructionTime> instruction_times(const plan::Plan& plan, const plan::Program& program, const executor::Timeline& timeline);

}  // namespace plimsoll::train
