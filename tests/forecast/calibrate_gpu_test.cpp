// Which instruction took how long, from timelines of calls that were issued one after the other.
#include <gtest/gtest.h>

#include "support/updates.h"
#include "train/machine/calibrate_gpu.h"

namespace plimsoll::train {
namespace {

using base::DType;
using base::Shape;

plan::Compute compute(const ops::Op& op, std::string kernel, std::int64_t elements) {
  plan::Compute made{.op = op, .kernel = std::move(kernel), .inputs = {}, .outputs = {}};
  made.outputs.push_back({plan::Operand::Kind::slot, 0, {DType::f32, Shape{elements}}});
  return made;
}

executor::TimelineEvent event(std::string kernel, double begin, double end) {
  return {.name = "event", .kernel = std::move(kernel), .stream = 0, .micro_batch = 0, .begin = begin, .end = end};
}

TEST(InstructionTimes, FollowTheCallsOfAllStreams) {
  plan::Plan plan;
  plan::Procedure device;
  // The update of two tensors, of which one is three times as large, is one launch.
  device.instructions = {compute(ops::Cast{}, "cast", 1000), compute(tests::AdamUpdate{}, "adam", 1000),
                         compute(tests::AdamUpdate{}, "adam", 3000), compute(ops::Cast{}, "cast", 1000)};
  plan::Procedure host;
  host.instructions = {compute(tests::AdamUpdate{}, "adam.simd", 4000), compute(ops::Cast{}, "cast.simd", 4000)};
  const plan::ProcedureId on_device = plan.procedures.add(device);
  const plan::ProcedureId on_host = plan.procedures.add(host);
  const auto call = [](plan::ProcedureId procedure, std::int32_t moment) {
    plan::Call made;
    made.entry = {procedure.index};
    made.moment = moment;
    return made;
  };
  plan::Program program;
  program.streams = std::vector<plan::Stream>{{.kind = plan::StreamKind::compute, .calls = {call(on_device, 0), call(on_device, 2)}},
                                              {.kind = plan::StreamKind::host_compute, .calls = {call(on_host, 1)}}};
  program.procedures = {on_device, on_host};

  executor::Timeline timeline;
  timeline.events = {event("cast", 0, 1),      event("adam", 1, 5),  event("cast", 5, 6),   event("", 0, 6),    // the first call
                     event("adam.simd", 0, 8), event("", 0, 8),                                                 // the host's
                     event("cast", 6, 8),      event("adam", 8, 16), event("cast", 16, 17), event("", 6, 17)};  // the third
  const std::vector<InstructionTime> times = instruction_times(plan, program, timeline);
  ASSERT_EQ(times.size(), 10u);
  const std::vector<double> expected{1.0, 1.0, 3.0, 1.0, 4.0, 4.0, 2.0, 2.0, 6.0, 1.0};
  const std::vector<double> parts{1.0, 0.25, 0.75, 1.0, 0.5, 0.5, 1.0, 0.25, 0.75, 1.0};
  for (std::size_t index = 0; index < times.size(); ++index) {
    EXPECT_NEAR(times[index].seconds, expected[index], 1e-3) << index;
    EXPECT_NEAR(times[index].part, parts[index], 1e-3) << index;
    EXPECT_EQ(times[index].stream, index == 4 || index == 5 ? plan::StreamKind::host_compute : plan::StreamKind::compute);
  }
  EXPECT_EQ(times[2].instruction, &plan.procedures[on_device].instructions[2]);
}

}  // namespace
}  // namespace plimsoll::train
