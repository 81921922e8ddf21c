#include "executor/sim/simulate.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/random.h"
#include "cost/layout.h"
#include "executor/sim/crew.h"
#include "executor/sim/flows.h"

namespace plimsoll::executor::sim {

namespace {

constexpr double kLeastShareOfTime = 0.05;  // jitter does not make a computation faster than this

// Spreads numbers over all 64 bits, so that what is made of several hardly ever meets another.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

class Clock {
 public:
  Clock(const Script& script, const cluster::Cluster& cluster, const Options& options)
      : script_(script), plan_(*script.plan), options_(options), crew_(crew_of(script, cluster, options, flows_)) {
    for (std::int64_t node = 0; cluster.device.cores > 0 && node <= cost::node_of(cluster, plan_.mesh.ranks() - 1); ++node)
      cores_.push_back(flows_.add_resource(static_cast<double>(cluster.device.cores)));
    shares_cores_ = cluster.device.cores > 0;
    beside_collective_ = shares_cores_ ? 1.0 : cluster.device.beside_collective();
  }

  Result run() {
    for (std::uint32_t actor = 0; actor < crew_.actors.size(); ++actor) {
      for (std::uint32_t lane = 0; lane < crew_.actors[actor].lanes.size(); ++lane) advance({actor, lane});
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.is_flow) {
        if (!flows_.is_current({.time = event.time, .flow = event.flow, .version = event.version})) continue;
        now_ = event.time;
        end_flow(event.flow);
      } else {
        const LaneState& lane = crew_.actors[event.place.actor].lanes[event.place.lane];
        if (lane.end != event.number) continue;  // put off or brought forward since
        now_ = event.time;
        end_work(event.place);
      }
    }
    require_end();
    return result();
  }

 private:
  // ---- time

  struct Event {
    double time = 0.0;
    std::uint64_t number = 0;  // of events at the same time, the earlier made comes first
    bool is_flow = false;
    Flows::FlowId flow = 0;
    std::uint32_t version = 0;
    Place place{};

    bool operator>(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };

  void account(Actor& actor) {
    const double passed = now_ - actor.since;
    if (actor.computing > 0) {
      actor.times.computing += passed;
    } else if (actor.moving > 0) {
      actor.times.exposed += passed;
    }
    actor.since = now_;
  }

  auto ends() {
    return [this](const Flows::End& end) {
      events_.push({.time = end.time, .number = ++number_, .is_flow = true, .flow = end.flow, .version = end.version});
    };
  }

  // ---- streams

  // Runs the lane until it has to wait.
  void advance(const Place& place) {
    Actor& actor = crew_.actors[place.actor];
    LaneState& lane = actor.lanes[place.lane];
    const std::vector<Turn>& turns = actor.part->lanes[place.lane].turns;
    while (lane.turn < turns.size()) {
      const Turn& turn = turns[lane.turn];
      if (!lane.entered) {
        if (!may_enter(actor, turn, place.lane)) return;
        lane.entered = true;
        lane.began = now_;
      }
      const std::vector<Step>& steps = script_.routines[turn.routine].steps;
      while (lane.step < steps.size()) {
        if (!begin(place, actor, turn, steps[lane.step])) return;
        ++lane.step;
      }
      leave(place, actor, lane, turn);
    }
  }

  static bool may_enter(Actor& actor, const Turn& turn, std::uint32_t lane) {
    for (std::uint32_t wait = turn.first_wait; wait < turn.first_wait + turn.waits; ++wait) {
      const std::uint32_t token = actor.part->waits[wait];
      if (actor.given[token] != 0) continue;
      actor.awaited[token] = static_cast<std::uint16_t>(actor.awaited[token] | (1u << lane));
      return false;
    }
    return true;
  }

  void leave(const Place& place, Actor& actor, LaneState& lane, const Turn& turn) {
    const double flops = turn.flops * static_cast<double>(actor.ranks);
    hardware_flops_ += flops;
    if (!turn.again) model_flops_ += flops;
    if (options_.spans) {
      actor.times.spans.push_back(
          {.lane = place.lane, .routine = turn.routine, .micro_batch = turn.micro_batch, .begin = lane.began, .end = now_});
    }
    ++lane.turn;
    lane.step = 0;
    lane.entered = false;
    if (turn.signals == kNoToken) return;
    actor.given[turn.signals] = 1;
    std::uint16_t waiting = std::exchange(actor.awaited[turn.signals], std::uint16_t{0});
    for (std::uint32_t other = 0; waiting != 0; ++other, waiting = static_cast<std::uint16_t>(waiting >> 1)) {
      if ((waiting & 1u) != 0) woken_.push_back({place.actor, other});
    }
    if (waking_) return;
    waking_ = true;
    while (!woken_.empty()) {
      const Place next = woken_.back();
      woken_.pop_back();
      advance(next);
    }
    waking_ = false;
  }

  // False: the lane waits, and goes on with the step after this one.
  bool begin(const Place& place, Actor& actor, const Turn& turn, const Step& step) {
    count_bytes(actor, step);
    switch (step.kind) {
      case Step::Kind::work: return begin_work(place, actor, step);
      case Step::Kind::meet: return arrive(place, actor, step);
      case Step::Kind::send: {
        const std::uint32_t to = crew_.other_end(actor, step.message, turn.micro_batch);
        begin_transfer({place}, step, message_key(place.actor, to, step, turn.micro_batch));
        return false;
      }
      case Step::Kind::receive: {
        const std::uint64_t key = message_key(crew_.other_end(actor, step.message, turn.micro_batch), place.actor, step, turn.micro_batch);
        if (arrived_.erase(key) > 0) return true;
        receivers_[key] = place;
        return false;
      }
      case Step::Kind::copy: begin_transfer({place}, step, kNoMessage); return false;
    }
    return true;
  }

  // A step that waited is over.
  void go_on(const Place& place) {
    ++crew_.actors[place.actor].lanes[place.lane].step;
    advance(place);
  }

  void count_bytes(const Actor& actor, const Step& step) {
    for (std::size_t link = 0; link < kLinkClasses; ++link) bytes_[link] += step.bytes[link] * static_cast<double>(actor.ranks);
  }

  // ---- computing

  double duration(const Place& place, const Actor& actor, const Step& step) const {
    double seconds = step.seconds * actor.slowness;
    if (options_.jitter > 0.0) {
      const LaneState& lane = actor.lanes[place.lane];
      const base::RandomBlock bits = base::philox({lane.turn, lane.step, place.lane, 0},
                                                  base::random_key(options_.seed, static_cast<std::uint64_t>(actor.first_rank)));
      const double draw = base::normal_from_bits(bits[0], bits[1])[0];
      seconds *= std::max(kLeastShareOfTime, 1.0 + options_.jitter * draw);
    }
    return seconds;
  }

  bool begin_work(const Place& place, Actor& actor, const Step& step) {
    const double seconds = duration(place, actor, step);
    account(actor);
    ++actor.computing;
    if (!shares_cores_) {
      LaneState& lane = actor.lanes[place.lane];
      lane.computes = !step.on_host;
      lane.left = seconds;
      lane.as_of = now_;
      lane.end = ++number_;
      events_.push({.time = now_ + seconds / (lane.computes ? pace(actor) : 1.0), .number = lane.end, .place = place});
      return false;
    }
    const double demand = static_cast<double>(plan_.threads) * static_cast<double>(actor.on_a_node);
    own({.places = {place}, .message = kNoMessage, .works = true}, flows_.start(now_, seconds, demand, cores_of({place}), ends()));
    return false;
  }

  void end_work(const Place& place) {
    Actor& actor = crew_.actors[place.actor];
    account(actor);
    --actor.computing;
    actor.lanes[place.lane].computes = false;
    go_on(place);
  }

  double pace(const Actor& actor) const { return actor.meeting > 0 ? beside_collective_ : 1.0; }

  // A collective keeps some of the device's units busy: what computes meanwhile has fewer.
  void meet(const Place& place, int change) {
    Actor& actor = crew_.actors[place.actor];
    const double before = pace(actor);
    actor.meeting += change;
    const double after = pace(actor);
    if (before == after) return;
    for (std::uint32_t index = 0; index < actor.lanes.size(); ++index) {
      LaneState& lane = actor.lanes[index];
      if (!lane.computes) continue;
      lane.left -= (now_ - lane.as_of) * before;
      lane.as_of = now_;
      lane.end = ++number_;
      events_.push({.time = now_ + std::max(0.0, lane.left) / after, .number = lane.end, .place = {place.actor, index}});
    }
  }

  // ---- moving

  struct Owner {
    std::vector<Place> places;
    std::uint64_t message = 0;
    bool works = false;
    bool meets = false;
  };

  static constexpr std::uint64_t kNoMessage = ~std::uint64_t{0};

  // The cores of all nodes that these are on.
  std::vector<Flows::ResourceId> cores_of(const std::vector<Place>& places) const {
    std::vector<Flows::ResourceId> resources;
    for (const Place& place : places) {
      for (const std::int64_t node : crew_.actors[place.actor].nodes) resources.push_back(cores_[static_cast<std::size_t>(node)]);
    }
    std::sort(resources.begin(), resources.end());
    resources.erase(std::unique(resources.begin(), resources.end()), resources.end());
    return resources;
  }

  // Ranks of these on the node that has most of them.
  double moving_on_a_node(const std::vector<Place>& places) const {
    std::map<std::int64_t, std::int64_t> ranks;
    std::int64_t most = 1;
    for (const Place& place : places) {
      const Actor& actor = crew_.actors[place.actor];
      for (const std::int64_t node : actor.nodes) most = std::max(most, ranks[node] += actor.on_a_node);
    }
    return static_cast<double>(most);
  }

  void own(Owner owner, Flows::FlowId flow) {
    if (flow >= owners_.size()) owners_.resize(flow + 1);
    owners_[flow] = std::move(owner);
  }

  static std::uint64_t message_key(std::uint32_t from, std::uint32_t to, const Step& step, std::int32_t micro_batch) {
    const std::uint64_t pair = (static_cast<std::uint64_t>(from) << 32) | to;
    const std::uint64_t message = (static_cast<std::uint64_t>(step.message.tag) << 32) | static_cast<std::uint32_t>(micro_batch);
    return mixed(mixed(pair) ^ message);
  }

  // All members have come: the transfer holds the same wire of each.
  void begin_transfer(std::vector<Place> places, const Step& step, std::uint64_t message) {
    std::vector<Flows::ResourceId> resources;
    const bool meets = step.kind == Step::Kind::meet;
    for (const Place& place : places) {
      if (meets) meet(place, 1);
      Actor& actor = crew_.actors[place.actor];
      account(actor);
      ++actor.moving;
      if (step.wire != Wire::none) resources.push_back(actor.wires[static_cast<std::size_t>(step.wire)]);
    }
    // Where ranks are threads of a processor, moving takes a core of each; between processors the wires are what they wait for.
    double demand = 1.0;
    if (shares_cores_ && step.wire != Wire::across) {
      demand = moving_on_a_node(places);
      resources = cores_of(places);
    }
    const Flows::FlowId flow = flows_.start(now_, step.seconds, demand, resources, ends());
    own({.places = std::move(places), .message = message, .meets = meets}, flow);
  }

  void end_flow(Flows::FlowId flow) {
    const Owner owner = std::move(owners_[flow]);
    flows_.finish(now_, flow, ends());
    for (const Place& place : owner.places) {
      Actor& actor = crew_.actors[place.actor];
      account(actor);
      --(owner.works ? actor.computing : actor.moving);
      if (owner.meets) meet(place, -1);
    }
    if (owner.message != kNoMessage) deliver(owner.message);
    for (const Place& place : owner.places) go_on(place);
  }

  void deliver(std::uint64_t message) {
    const auto found = receivers_.find(message);
    if (found == receivers_.end()) {
      arrived_.insert(message);
      return;
    }
    const Place receiver = found->second;
    receivers_.erase(found);
    go_on(receiver);
  }

  bool arrive(const Place& place, const Actor& actor, const Step& step) {
    Group& group = crew_.groups[actor.groups[step.axis]];
    group.arrived.push_back(place);
    if (group.arrived.size() == group.members.size()) begin_transfer(std::exchange(group.arrived, {}), step, kNoMessage);
    return false;
  }

  // ---- the end

  void require_end() const {
    for (const Actor& actor : crew_.actors) {
      for (std::size_t lane = 0; lane < actor.lanes.size(); ++lane) {
        const std::vector<Turn>& turns = actor.part->lanes[lane].turns;
        if (actor.lanes[lane].turn == turns.size()) continue;
        base::bad_input("the plan never ends: {} waits for ever in {} of stream {}", actor.times.name,
                        script_.routines[turns[actor.lanes[lane].turn].routine].name, plan::name_of(actor.part->lanes[lane].kind));
      }
    }
  }

  Result result() {
    Result result{.seconds = now_, .ranks = plan_.mesh.ranks(), .times = {}, .routines = {}, .bytes = bytes_};
    result.model_flops = model_flops_;
    result.hardware_flops = hardware_flops_;
    for (Actor& actor : crew_.actors) {
      actor.times.waiting = std::max(0.0, now_ - actor.times.computing - actor.times.exposed);
      result.times.push_back(std::move(actor.times));
    }
    for (const Routine& routine : script_.routines) result.routines.push_back(routine.name);
    return result;
  }

  const Script& script_;
  const plan::Plan& plan_;
  const Options& options_;
  Flows flows_;
  Crew crew_;
  std::unordered_map<std::uint64_t, Place> receivers_;
  std::unordered_set<std::uint64_t> arrived_;
  std::vector<Owner> owners_;             // by flow
  std::vector<Flows::ResourceId> cores_;  // by node, where ranks share them
  bool shares_cores_ = false;
  double beside_collective_ = 1.0;  // of a device's computing, what is left
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Place> woken_;
  bool waking_ = false;
  double now_ = 0.0;
  std::uint64_t number_ = 0;
  LinkBytes bytes_{};
  double model_flops_ = 0.0;
  double hardware_flops_ = 0.0;
};

double share_of(const Result& result, double RankTimes::* part) {
  double sum = 0.0;
  for (const RankTimes& times : result.times) sum += times.*part * static_cast<double>(times.ranks);
  return result.seconds > 0.0 ? sum / (result.seconds * static_cast<double>(result.ranks)) : 0.0;
}

double tflops(const Result& result, double flops) {
  return result.seconds > 0.0 ? flops / result.seconds / static_cast<double>(result.ranks) / 1e12 : 0.0;
}

}  // namespace

double Result::bubble_fraction() const { return share_of(*this, &RankTimes::waiting); }
double Result::exposed_fraction() const { return share_of(*this, &RankTimes::exposed); }
double Result::model_tflops_per_device() const { return tflops(*this, model_flops); }
double Result::hardware_tflops_per_device() const { return tflops(*this, hardware_flops); }

Result simulate(const Script& script, const cluster::Cluster& cluster, const Options& options) {
  return Clock(script, cluster, options).run();
}

Result simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const Options& options) {
  return simulate(priced(plan, options.program, cluster), cluster, options);
}

}  // namespace plimsoll::executor::sim
