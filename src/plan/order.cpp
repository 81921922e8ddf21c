// A call knows that another is over if it comes behind it on its own stream, waits for its token, or follows such a call.
// For every call this keeps the newest finished moment of each stream; streams run in order, so that one number says all.
#include "plan/order.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace plimsoll::plan {

namespace {

struct Use {
  std::int64_t begin = 0;  // in the arena of the tier
  std::int64_t end = 0;
  Tier tier = Tier::device;
};

class Order {
 public:
  Order(const RankClass& rank_class, const Program& program) : class_(rank_class), program_(program) {
    moments_ = static_cast<std::size_t>(moments_of(program));
    calls_.assign(moments_, nullptr);
    stream_of_.assign(moments_, 0);
    known_.assign(program.streams.size(), std::vector<std::int32_t>(moments_, -1));
    std::vector<std::int32_t> signalled(program.tokens, -1);
    for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
      for (const Call& call : program.streams[stream].calls) {
        calls_[at(call.moment)] = &call;
        stream_of_[at(call.moment)] = stream;
        if (call.signals.valid()) signalled[call.signals.index] = call.moment;
      }
    }
    std::vector<std::int32_t> newest(program.streams.size(), -1);
    for (std::size_t moment = 0; moment < moments_; ++moment) {
      std::int32_t& before = newest[stream_of_[moment]];
      learn(moment, before);
      for (TokenId token : calls_[moment]->waits) learn(moment, signalled[token.index]);
      before = static_cast<std::int32_t>(moment);
    }
  }

  std::optional<std::string> problem() const {
    for (std::size_t later = 0; later < moments_; ++later) {
      for (std::size_t stream = 0; stream < program_.streams.size(); ++stream) {
        if (stream == stream_of_[later]) continue;
        // Calls of that stream that come earlier and may still run.
        const std::vector<Call>& calls = program_.streams[stream].calls;
        const auto by_moment = [](std::int32_t moment, const Call& call) { return moment < call.moment; };
        auto earlier = std::upper_bound(calls.begin(), calls.end(), known_[stream][later], by_moment);
        for (; earlier != calls.end() && at(earlier->moment) < later; ++earlier) {
          if (meet(*earlier, *calls_[later])) {
            return fmt::format("{}: {} at moment {} does not wait for {} at moment {}, and they share memory", program_.name,
                               calls_[later]->label, later, earlier->label, earlier->moment);
          }
        }
      }
    }
    return std::nullopt;
  }

 private:
  static std::size_t at(std::int32_t moment) { return static_cast<std::size_t>(moment); }

  void learn(std::size_t moment, std::int32_t finished) {
    if (finished < 0) return;
    for (std::vector<std::int32_t>& line : known_) line[moment] = std::max(line[moment], line[at(finished)]);
    std::int32_t& own = known_[stream_of_[at(finished)]][moment];
    own = std::max(own, finished);
  }

  template <typename Visit>
  bool any_use(const Call& call, const Visit& visit) const {
    const auto use_of = [&](BufferId id) {
      const Buffer& buffer = class_.buffers[id];
      return Use{buffer.offset.count, (buffer.offset + buffer.bytes).count, buffer.tier};
    };
    for (BufferId id : call.bindings) {
      if (visit(use_of(id))) return true;
    }
    return call.frame.valid() && visit(use_of(call.frame));
  }

  // Sharing a buffer that both only read would be harmless, but streams are there to overlap different work: what two of
  // them use at once is read by both only when it is a weight, which no call beside an update writes.
  bool meet(const Call& a, const Call& b) const {
    return any_use(
        a, [&](const Use& x) { return any_use(b, [&](const Use& y) { return x.tier == y.tier && x.begin < y.end && y.begin < x.end; }); });
  }

  const RankClass& class_;
  const Program& program_;
  std::size_t moments_ = 0;
  std::vector<const Call*> calls_;
  std::vector<std::size_t> stream_of_;
  std::vector<std::vector<std::int32_t>> known_;  // [stream][moment]: newest moment of the stream that is over then
};

}  // namespace

std::optional<std::string> order_problem(const RankClass& rank_class, std::int32_t program) {
  const Program& checked = rank_class.programs.at(static_cast<std::size_t>(program));
  if (checked.streams.size() < 2) return std::nullopt;
  return Order(rank_class, checked).problem();
}

}  // namespace plimsoll::plan
