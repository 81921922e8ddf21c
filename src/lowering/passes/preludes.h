// Preludes of updates (ops/prelude.h) where ranks share out parameters: each has the prelude of its piece. Pieces wait until somebody
// reads one; then all of them are exchanged together.
#pragma once

#include <functional>
#include <vector>

#include "graph/rewrite.h"

namespace plimsoll::lowering {

class PreludeExchange {
 public:
  // A value of the old graph, and what this rank made of it.
  struct Piece {
    graph::ValueId old;
    graph::ValueId made;
  };
  // An all_gather of so many tensors over the ranks that share out, of which there are gather(..).members.
  using Gather = std::function<ops::Collective(std::size_t tensors)>;
  // The whole steps, in the order of the pieces.
  using PutTogether = std::function<std::vector<graph::ValueId>(const graph::Site& site, const std::vector<Piece>& pieces)>;

  PreludeExchange(graph::Rewrite& rewrite, Gather gather, PutTogether put_together)
      : rewrite_(rewrite), gather_(std::move(gather)), put_together_(std::move(put_together)) {}

  void wait(const Piece& piece, bool is_sum) { (is_sum ? sums_ : steps_).push_back(piece); }
  // Before a node of the old graph that may read what waits.
  void settle_for(const graph::Node& reader);

 private:
  graph::Rewrite& rewrite_;
  Gather gather_;
  PutTogether put_together_;
  std::vector<Piece> sums_;
  std::vector<Piece> steps_;
};

// The whole steps of pieces that are shards.
std::vector<graph::ValueId> gather_shards(graph::Rewrite& rewrite, const ops::Collective& gather, const graph::Site& site,
                                          const std::vector<PreludeExchange::Piece>& pieces);

}  // namespace plimsoll::lowering
