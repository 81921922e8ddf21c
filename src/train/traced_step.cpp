#include "train/traced_step.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "train/session/together.h"

namespace plimsoll::train {

namespace {

using report::ClassTimes;

constexpr std::int32_t kMostRanks = 64;
constexpr std::size_t kMostInstructions = 300'000;  // of a step, all classes together
const plan::Program& train_program(const plan::RankClass& rank_class) { return *plan::find_program(rank_class, kTrain); }

ClassTimes times_of(const plan::Program& program, const executor::Timeline& timeline) {
  ClassTimes times(program.streams.size());
  for (const executor::TimelineEvent& event : timeline.events) {
    if (event.kernel.empty()) times[static_cast<std::size_t>(event.stream)].push_back({event.begin, event.end});
  }
  return times;
}

bool is_whole(const plan::Program& program, const ClassTimes& times) {
  for (std::size_t stream = 0; stream < times.size(); ++stream) {
    if (times[stream].size() != program.streams[stream].calls.size()) return false;
  }
  return true;
}

std::string packed(const ClassTimes& times) {
  std::string bytes;
  for (const std::vector<report::CallTime>& calls : times) {
    for (const report::CallTime& call : calls) bytes.append(reinterpret_cast<const char*>(&call), sizeof call);
  }
  return bytes;
}

ClassTimes unpacked(const plan::Program& program, const std::string& bytes) {
  ClassTimes times;
  std::size_t at = 0;
  for (const plan::Stream& stream : program.streams) {
    std::vector<report::CallTime>& calls = times.emplace_back(stream.calls.size());
    PLIMSOLL_CHECK(at + calls.size() * sizeof(report::CallTime) <= bytes.size(), "times of {} calls are missing", calls.size());
    if (!calls.empty()) std::memcpy(calls.data(), bytes.data() + at, calls.size() * sizeof(report::CallTime));
    at += calls.size() * sizeof(report::CallTime);
  }
  return times;
}

}  // namespace

bool is_drawn(const plan::Plan& plan) {
  if (plan.mesh.ranks() > kMostRanks) return false;
  std::size_t instructions = 0;
  for (const plan::RankClass& rank_class : plan.classes) {
    const plan::Program& program = train_program(rank_class);
    for (const plan::Stream& stream : program.streams) {
      for (const plan::Call& call : stream.calls) instructions += plan.procedures[program.procedure_of(call)].instructions.size();
    }
  }
  return instructions <= kMostInstructions;
}

std::vector<ClassTimes> gathered_times(Session& session, const executor::Timeline& timeline) {
  const plan::Plan& plan = session.plan();
  const plan::RankClass& own = plan::class_of(plan, session.rank());
  const ClassTimes times = times_of(train_program(own), timeline);
  const bool speaks = own.ranks.front() == session.rank() && is_whole(train_program(own), times);
  const std::vector<std::string> all = tell_all(session.world(), speaks ? packed(times) : std::string());
  std::vector<ClassTimes> gathered;
  for (const plan::RankClass& rank_class : plan.classes) {
    const std::string& bytes = all[static_cast<std::size_t>(rank_class.ranks.front())];
    if (bytes.empty()) return {};
    gathered.push_back(unpacked(train_program(rank_class), bytes));
  }
  return gathered;
}

}  // namespace plimsoll::train
