// One actor for each class: ranks of a class differ only on the data axis, where they do the same and so always meet. Each is its
// class's first rank.
#include "plan/meetings.h"

#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

namespace plimsoll::plan {

namespace {

// Where a stream is: the call, and how many of its instructions are done.
struct Progress {
  std::size_t call = 0;
  std::size_t instruction = 0;
};

struct Actor {
  const RankClass* rank_class = nullptr;
  const Program* program = nullptr;
  std::int32_t rank = 0;
  std::vector<Progress> streams{};
  std::vector<bool> signalled{};
};

// The collectives of a group in the order in which they come up. Members arrive at the first that is not complete.
struct Gathering {
  std::string what;
  std::int32_t arrived = 0;
};

class Meetings {
 public:
  Meetings(const Plan& plan, const std::string& program) : plan_(plan) {
    for (const RankClass& rank_class : plan.classes) {
      Actor actor{.rank_class = &rank_class, .program = find_program(rank_class, program)};
      if (actor.program == nullptr) {
        problem_ = fmt::format("{}: {} does not have it", program, rank_class.name);
        return;
      }
      actor.rank = rank_class.ranks.front();
      actor.streams.resize(actor.program->streams.size());
      actor.signalled.assign(actor.program->tokens, false);
      actors_.push_back(std::move(actor));
    }
  }

  std::optional<std::string> run() {
    bool moved = true;
    while (moved && !problem_) {
      moved = false;
      for (Actor& actor : actors_) {
        for (std::size_t stream = 0; stream < actor.streams.size(); ++stream) {
          while (!problem_ && advance(actor, stream)) moved = true;
        }
      }
    }
    if (!problem_) find_waiting();
    if (!problem_ && !mailbox_.empty()) {
      const auto& [from, to, tag, micro_batch] = mailbox_.begin()->first;
      problem_ = fmt::format("{}: nobody receives message {} of micro-batch {} from rank {} to {}", actors_.front().program->name, tag,
                             micro_batch, from, to);
    }
    return problem_;
  }

 private:
  using Letter = std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int32_t>;  // from, to, tag, micro-batch

  // One instruction, or the end of a call; false when the stream is at its end or must wait.
  bool advance(Actor& actor, std::size_t stream) {
    const std::vector<Call>& calls = actor.program->streams[stream].calls;
    Progress& at = actor.streams[stream];
    if (at.call == calls.size()) return false;
    const Call& call = calls[at.call];
    for (TokenId token : call.waits) {
      if (!actor.signalled[token.index]) return false;
    }
    const std::vector<Instruction>& instructions = plan_.procedures[call.procedure].instructions;
    if (at.instruction < instructions.size()) {
      if (!pass(actor, stream, call, instructions[at.instruction])) return false;
      ++at.instruction;
      return true;
    }
    if (call.signals.valid()) actor.signalled[call.signals.index] = true;
    at = {at.call + 1, 0};
    return true;
  }

  bool pass(const Actor& actor, std::size_t stream, const Call& call, const Instruction& instruction) {
    if (const auto* message = std::get_if<Message>(&instruction)) return carry(actor, call, message->op);
    const auto* collective = std::get_if<Collective>(&instruction);
    if (collective == nullptr) return true;
    const ops::Axis axis = collective->op.axis;
    const bool over_data = axis == ops::Axis::data || axis == ops::Axis::data_inner || axis == ops::Axis::data_outer;
    if (over_data && plan_.mesh.even()) return true;
    ops::Collective op = collective->op;
    op.place = 0;  // where they are on the axis is all that may differ
    return gather(actor, stream, call, op);
  }

  bool carry(const Actor& actor, const Call& call, const ops::Message& message) {
    const std::int32_t other = plan_.mesh.other_end(actor.rank, message, call.micro_batch);
    if (!message.receive) {
      ++mailbox_[{actor.rank, other, message.tag, call.micro_batch}];
      return true;
    }
    const auto found = mailbox_.find({other, actor.rank, message.tag, call.micro_batch});
    if (found == mailbox_.end()) return false;
    if (--found->second == 0) mailbox_.erase(found);
    return true;
  }

  // A member that has arrived waits until all others have.
  bool gather(const Actor& actor, std::size_t stream, const Call& call, const ops::Collective& op) {
    const std::pair<ops::Axis, std::int32_t> group{op.axis, plan_.mesh.group(op.axis, actor.rank).front()};
    std::vector<Gathering>& gatherings = gatherings_[group];
    auto& [count, waiting] = attended_[{&actor, op.axis}];
    if (!waiting) {
      const std::string what = fmt::format("{} on stream {}", ops::to_string(op), name_of(actor.program->streams[stream].kind));
      if (count == gatherings.size()) gatherings.push_back({what});
      Gathering& here = gatherings[count];
      if (here.what != what) {
        problem_ = fmt::format("{}: {} of {} calls {}, where others call {}", actor.program->name, call.label, actor.rank_class->name, what,
                               here.what);
        return false;
      }
      ++here.arrived;
      waiting = true;
    }
    if (gatherings[count].arrived < static_cast<std::int32_t>(op.members)) return false;
    ++count;
    waiting = false;
    return true;
  }

  void find_waiting() {
    for (const Actor& actor : actors_) {
      for (std::size_t stream = 0; stream < actor.streams.size(); ++stream) {
        const std::vector<Call>& calls = actor.program->streams[stream].calls;
        if (actor.streams[stream].call == calls.size()) continue;
        const Call& call = calls[actor.streams[stream].call];
        problem_ = fmt::format("{}: {} of micro-batch {} waits for ever on stream {} of {}", actor.program->name, call.label,
                               call.micro_batch, name_of(actor.program->streams[stream].kind), actor.rank_class->name);
        return;
      }
    }
  }

  const Plan& plan_;
  std::vector<Actor> actors_;
  std::map<Letter, std::int32_t> mailbox_;
  std::map<std::pair<ops::Axis, std::int32_t>, std::vector<Gathering>> gatherings_;
  std::map<std::pair<const Actor*, ops::Axis>, std::pair<std::size_t, bool>> attended_;
  std::optional<std::string> problem_;
};

}  // namespace

std::vector<std::string> meeting_problems(const Plan& plan) {
  std::vector<std::string> problems;
  if (plan.classes.empty()) return problems;
  for (const Program& program : plan.classes.front().programs) {
    std::optional<std::string> problem = Meetings(plan, program.name).run();
    if (problem) problems.push_back(std::move(*problem));
  }
  return problems;
}

}  // namespace plimsoll::plan
