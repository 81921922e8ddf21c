#include "lowering/passes/preludes.h"

#include <algorithm>

namespace plimsoll::lowering {

using graph::ValueId;

void PreludeExchange::settle_for(const graph::Node& reader) {
  const auto read = [&](const Piece& piece) {
    return std::find(reader.inputs.begin(), reader.inputs.end(), piece.old) != reader.inputs.end();
  };
  const graph::Site site{.block = reader.block, .phase = reader.phase};
  if (std::any_of(sums_.begin(), sums_.end(), read)) {
    std::vector<ValueId> pieces;
    for (const Piece& piece : sums_) pieces.push_back(piece.made);
    const ops::Collective gather = gather_(pieces.size());
    const std::vector<ValueId> all = rewrite_.make(gather, pieces, site, "sums.everybody");
    for (std::size_t index = 0; index < sums_.size(); ++index) {
      const std::string& name = rewrite_.from().values[sums_[index].old].name;
      rewrite_.replace(sums_[index].old, rewrite_.make_one(ops::MergeSums{.members = gather.members}, {all[index]}, site, name));
    }
    sums_.clear();
  }
  if (std::any_of(steps_.begin(), steps_.end(), read)) {
    const std::vector<ValueId> whole = put_together_(site, steps_);
    for (std::size_t index = 0; index < steps_.size(); ++index) rewrite_.replace(steps_[index].old, whole[index]);
    steps_.clear();
  }
}

std::vector<ValueId> gather_shards(graph::Rewrite& rewrite, const ops::Collective& gather, const graph::Site& site,
                                   const std::vector<PreludeExchange::Piece>& pieces) {
  std::vector<ValueId> shards, whole;
  for (const PreludeExchange::Piece& piece : pieces) shards.push_back(piece.made);
  const std::vector<ValueId> flat = rewrite.make(gather, shards, site, "steps.gathered");
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const graph::Value& value = rewrite.from().values[pieces[index].old];
    whole.push_back(rewrite.make_one(ops::View{.shape = value.type.shape}, {flat[index]}, site, value.name));
  }
  return whole;
}

}  // namespace plimsoll::lowering
