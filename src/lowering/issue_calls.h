// The loop that turns a rank's order into calls on streams, for plans with memory (lower.cpp) and without (outline.cpp). `Target` says
// what the calls are:
//
//   void prepare(const Issue&)                          the piece's procedure is wanted next
//   plan::Call call(const Issue&, moment)               of the piece
//   plan::Call stash(block, weights, update, moment)    copies of weights that micro-batches under way still compute with
//   plan::Call pause(const Issue&)                      waits, and does nothing
#pragma once

#include <map>
#include <vector>

#include "lowering/layout/issue_order.h"
#include "lowering/layout/procedures.h"
#include "lowering/layout/streams.h"
#include "lowering/layout/versions.h"
#include "lowering/rank_graph.h"

namespace plimsoll::lowering {

template <typename Target>
void issue_calls(const std::vector<Issue>& order, const std::vector<Piece>& pieces, Versions& versions, Streams& streams, Target& target) {
  Settling settling(streams);
  for (const Issue& issue : order) {
    const Piece& piece = pieces[issue.piece];
    if (versions.ends_before(piece.phase, issue)) {
      for (const auto& [block, weights] : versions.weights_by_block())
        streams.add(target.stash(block, weights, issue, streams.moments()), plan::StreamKind::compute);
    }
    target.prepare(issue);
    if (settling.pauses(piece)) streams.add(target.pause(issue), plan::StreamKind::compute);
    settling.before(piece, issue);
    streams.add(target.call(issue, streams.moments()), piece.stream);
  }
}

// A procedure, and the storage behind each of its slots.
struct Made {
  plan::ProcedureId procedure;
  std::vector<StorageId> slots;
};

// The procedures of pieces, each made when it is first wanted.
class MadeProcedures {
 public:
  template <typename Add>
  const Made& of(const ProcedureInputs& inputs, const Issue& issue, const Add& add) {
    const auto [found, fresh] = made_.try_emplace({issue.piece, issue.accumulate});
    if (fresh) {
      BoundProcedure bound = make_procedure(inputs, issue.piece, issue.accumulate);
      found->second = {add(std::move(bound.procedure)), std::move(bound.slots)};
    }
    return found->second;
  }

  const std::map<std::pair<std::size_t, bool>, Made>& all() const { return made_; }

 private:
  std::map<std::pair<std::size_t, bool>, Made> made_;  // by piece, and whether gradients are added to what is there
};

}  // namespace plimsoll::lowering
