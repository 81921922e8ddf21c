// One actor for all ranks that do the same, and so always meet: those of a class, which differ only on axes whose ranks run one program,
// and tensor ranks whose calls are alike at every place of the other axes. Each is its first class's first rank.
#include "plan/meetings.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "plan/alike.h"
#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

// Where a procedure meets others: a message, or a collective, by the number of what it is and its axis's place in the mesh's table.
struct Meeting {
  const ops::Message* message = nullptr;
  const ops::Collective* collective = nullptr;
  std::size_t what = 0;
  std::uint32_t axis = 0;
};

// The meetings of procedures, in order. Collectives that may meet have the same number.
class Agenda {
 public:
  explicit Agenda(const Plan& plan) {
    for (const Procedure& procedure : plan.procedures) {
      std::vector<Meeting>& meetings = of_.emplace_back();
      for (const Instruction& instruction : procedure.instructions) {
        match(
            instruction, [&](const Message& message) { meetings.push_back({.message = &message.op}); },
            [&](const Collective& collective) {
              const std::uint32_t axis = plan.mesh.index(collective.op.axis);
              const ops::AxisRow& row = plan.mesh.table()[axis].row;
              inner_tensor_ = inner_tensor_ || row.part_of == ops::Axis::tensor;
              if (row.differs() || !plan.mesh.even())
                meetings.push_back({.collective = &collective.op, .what = number_of(collective.op), .axis = axis});
            },
            kIgnoreOthers);
      }
    }
  }

  const std::vector<Meeting>& of(ProcedureId id) const { return of_[id.index]; }
  const std::string& text(std::size_t what) const { return texts_[what]; }
  bool inner_tensor() const { return inner_tensor_; }

  // Whether both meet the same others in the same order, where they are at the same place but for the tensor axis.
  bool same(ProcedureId a, ProcedureId b) const {
    return std::equal(of(a).begin(), of(a).end(), of(b).begin(), of(b).end(), [](const Meeting& x, const Meeting& y) {
      return (x.message == nullptr) == (y.message == nullptr) && x.what == y.what && (x.message == nullptr || *x.message == *y.message);
    });
  }

 private:
  std::size_t number_of(ops::Collective op) {
    op.place = 0;  // where they are on the axis is all that may differ
    const auto [found, fresh] = numbers_.try_emplace(ops::to_string(op), texts_.size());
    if (fresh) texts_.push_back(found->first);
    return found->second;
  }

  std::vector<std::vector<Meeting>> of_;
  std::vector<std::string> texts_;
  std::map<std::string, std::size_t> numbers_;
  bool inner_tensor_ = false;
};

// Of tensor ranks that do the same at every place of the pipe axis, the first: by place on the tensor axis.
std::vector<std::int32_t> first_alike(const Plan& plan, const Agenda& agenda) {
  std::vector<std::int32_t> first;
  const std::int32_t tensor = plan.mesh.extent(ops::Axis::tensor);
  std::vector<std::vector<const RankClass*>> by_place(static_cast<std::size_t>(tensor));
  for (const RankClass& rank_class : plan.classes)
    by_place[static_cast<std::size_t>(plan.mesh.place(ops::Axis::tensor, rank_class.ranks.front()))].push_back(&rank_class);
  const auto same_class = [&](const RankClass* a, const RankClass* b) {
    if (!share_calls(plan, *a, *b)) return false;
    for (std::size_t program = 0; program < a->programs.size(); ++program) {
      const std::vector<ProcedureId>& of_a = a->programs[program].procedures;
      const std::vector<ProcedureId>& of_b = b->programs[program].procedures;
      if (!std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](ProcedureId x, ProcedureId y) { return agenda.same(x, y); }))
        return false;
    }
    return true;
  };
  for (std::int32_t place = 0; place < tensor; ++place) {
    const auto& mine = by_place[static_cast<std::size_t>(place)];
    std::int32_t found = 0;
    while (found < place) {
      const auto& other = by_place[static_cast<std::size_t>(found)];
      if (first[static_cast<std::size_t>(found)] == found && std::equal(other.begin(), other.end(), mine.begin(), mine.end(), same_class))
        break;
      ++found;
    }
    first.push_back(found);
  }
  return first;
}

// Where a stream is: the call, and how many of its meetings are over.
struct Progress {
  std::size_t call = 0;
  std::size_t meeting = 0;
};

struct Actor;

// The collectives of a group in the order in which they come up. Members arrive at the first that is not complete.
struct Gathering {
  std::size_t what = 0;
  StreamKind stream = StreamKind::compute;
  std::int32_t arrived = 0;
  std::vector<Actor*> waiting{};
};

// Messages of one kind from a rank to another.
struct Channel {
  std::vector<std::int32_t> under_way{};  // by micro-batch
  Actor* waiting = nullptr;               // for one of them
};

// An actor's part in the collectives of an axis.
struct Attendance {
  std::vector<Gathering>* group = nullptr;
  std::size_t count = 0;
  bool waiting = false;
};

struct Actor {
  const RankClass* rank_class = nullptr;
  const Program* program = nullptr;
  std::int32_t rank = 0;
  std::int32_t tensor_ranks = 1;  // that it stands for
  std::vector<Progress> streams{};
  std::vector<bool> signalled{};
  std::vector<Attendance> attended{};  // by axis, as in the mesh's table
  bool woken = false;
  // By message: where all micro-batches go to, or come from, where they all have the same other end.
  std::unordered_map<const ops::Message*, Channel*> channels{};
};

class Meetings {
 public:
  Meetings(const Plan& plan, const Agenda& agenda, const std::vector<std::int32_t>& first, const std::string& program)
      : plan_(plan), agenda_(agenda) {
    for (const RankClass& rank_class : plan.classes) {
      Actor actor{.rank_class = &rank_class, .program = find_program(rank_class, program)};
      if (actor.program == nullptr) {
        if (role_has(rank_class.role, program)) {
          problem_ = fmt::format("{}: {} does not have it", program, rank_class.name);
          return;
        }
        continue;
      }
      actor.rank = rank_class.ranks.front();
      if (!first.empty()) {
        const std::int32_t place = plan.mesh.place(ops::Axis::tensor, actor.rank);
        if (first[static_cast<std::size_t>(place)] != place) continue;
        actor.tensor_ranks = static_cast<std::int32_t>(std::count(first.begin(), first.end(), place));
      }
      actor.streams.resize(actor.program->streams.size());
      actor.signalled.assign(actor.program->tokens, false);
      actor.attended.resize(plan.mesh.table().size());
      actors_.push_back(std::move(actor));
    }
  }

  std::optional<std::string> run() {
    for (Actor& actor : actors_) wake(actor);
    while (!woken_.empty() && !problem_) {
      Actor& actor = *woken_.front();
      woken_.pop_front();
      actor.woken = false;
      go_on(actor);
    }
    if (!problem_) find_waiting();
    if (!problem_) find_undelivered();
    return problem_;
  }

 private:
  using Ends = std::tuple<std::int32_t, std::int32_t, std::int64_t>;  // from, to, tag

  bool role_has(const std::string& role, const std::string& program) const {
    return std::any_of(plan_.classes.begin(), plan_.classes.end(), [&](const RankClass& rank_class) {
      return rank_class.role == role && find_program(rank_class, program) != nullptr;
    });
  }

  // What it waited for may be there.
  void wake(Actor& actor) {
    if (!std::exchange(actor.woken, true)) woken_.push_back(&actor);
  }

  // As far as it comes without others.
  void go_on(Actor& actor) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stream = 0; stream < actor.streams.size(); ++stream) {
        while (!problem_ && advance(actor, stream)) moved = true;
      }
    }
  }

  // A call's next meetings, and its end where none is left; false when the stream is at its end or must wait.
  bool advance(Actor& actor, std::size_t stream) {
    const std::vector<Call>& calls = actor.program->streams[stream].calls;
    Progress& at = actor.streams[stream];
    if (at.call == calls.size()) return false;
    const Call& call = calls[at.call];
    for (TokenId token : call.waits) {
      if (!actor.signalled[token.index]) return false;
    }
    const std::vector<Meeting>& meetings = agenda_.of(actor.program->procedure_of(call));
    for (const std::size_t first = at.meeting; at.meeting < meetings.size(); ++at.meeting) {
      const Meeting& meeting = meetings[at.meeting];
      const bool met = meeting.message != nullptr ? carry(actor, call, *meeting.message) : gather(actor, stream, call, meeting);
      if (!met) return at.meeting > first;
    }
    if (call.signals.valid()) actor.signalled[call.signals.index] = true;
    at = {at.call + 1, 0};
    return true;
  }

  bool carry(Actor& actor, const Call& call, const ops::Message& message) {
    Channel& channel = channel_of(actor, call, message);
    const auto micro_batch = static_cast<std::size_t>(call.micro_batch);
    if (micro_batch >= channel.under_way.size()) channel.under_way.resize(micro_batch + 1);
    std::int32_t& under_way = channel.under_way[micro_batch];
    if (!message.receive) {
      ++under_way;
      if (channel.waiting != nullptr) wake(*std::exchange(channel.waiting, nullptr));
      return true;
    }
    if (under_way == 0) {
      channel.waiting = &actor;
      return false;
    }
    --under_way;
    return true;
  }

  Channel& channel_of(Actor& actor, const Call& call, const ops::Message& message) {
    const auto find = [&]() -> Channel& {
      const std::int32_t other = other_end(plan_.mesh, actor.rank, message, call.micro_batch);
      return channels_[message.receive ? Ends{other, actor.rank, message.tag} : Ends{actor.rank, other, message.tag}];
    };
    if (!plan_.mesh.even()) return find();
    Channel*& known = actor.channels[&message];
    if (known == nullptr) known = &find();
    return *known;
  }

  void find_undelivered() {
    for (const auto& [ends, channel] : channels_) {
      const std::vector<std::int32_t>& under_way = channel.under_way;
      const auto left = std::find_if(under_way.begin(), under_way.end(), [](std::int32_t count) { return count > 0; });
      if (left == under_way.end()) continue;
      const auto& [from, to, tag] = ends;
      problem_ = fmt::format("{}: nobody receives message {} of micro-batch {} from rank {} to {}", actors_.front().program->name, tag,
                             left - under_way.begin(), from, to);
      return;
    }
  }

  // A member that has arrived waits until all others have.
  bool gather(Actor& actor, std::size_t stream, const Call& call, const Meeting& meeting) {
    const ops::Axis& axis = meeting.collective->axis;
    auto& [group, count, waiting] = actor.attended[meeting.axis];
    if (group == nullptr) group = &gatherings_[{meeting.axis, plan_.mesh.group(axis, actor.rank).front()}];
    if (!waiting) {
      const StreamKind kind = actor.program->streams[stream].kind;
      if (count == group->size()) group->push_back({meeting.what, kind});
      Gathering& here = (*group)[count];
      if (here.what != meeting.what || here.stream != kind) {
        problem_ =
            fmt::format("{}: {} of {} calls {} on stream {}, where others call {} on stream {}", actor.program->name, call.label,
                        actor.rank_class->name, agenda_.text(meeting.what), name_of(kind), agenda_.text(here.what), name_of(here.stream));
        return false;
      }
      here.arrived += axis == ops::Axis::tensor ? actor.tensor_ranks : 1;
      waiting = true;
      if (complete(here, meeting)) {
        for (Actor* other : std::exchange(here.waiting, {})) wake(*other);
      } else {
        here.waiting.push_back(&actor);
      }
    }
    if (!complete((*group)[count], meeting)) return false;
    ++count;
    waiting = false;
    return true;
  }

  static bool complete(const Gathering& gathering, const Meeting& meeting) {
    return gathering.arrived >= static_cast<std::int32_t>(meeting.collective->members);
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
  const Agenda& agenda_;
  std::vector<Actor> actors_;
  std::deque<Actor*> woken_;
  std::map<Ends, Channel> channels_;
  std::map<std::pair<std::uint32_t, std::int32_t>, std::vector<Gathering>> gatherings_;  // by axis and first rank
  std::optional<std::string> problem_;
};

// Of all roles.
std::vector<std::string> program_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const RankClass& rank_class : plan.classes) {
    for (const Program& program : rank_class.programs) {
      if (std::find(names.begin(), names.end(), program.name) == names.end()) names.push_back(program.name);
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> meeting_problems(const Plan& plan) {
  std::vector<std::string> problems;
  if (plan.classes.empty()) return problems;
  const Agenda agenda(plan);
  std::vector<std::int32_t> first;  // empty: every class is an actor
  if (plan.mesh.even() && !agenda.inner_tensor()) first = first_alike(plan, agenda);
  for (const std::string& program : program_names(plan)) {
    std::optional<std::string> problem = Meetings(plan, agenda, first, program).run();
    if (problem) problems.push_back(std::move(*problem));
  }
  return problems;
}

}  // namespace plimsoll::plan
