#include "plan/alike.h"

#include <algorithm>

namespace plimsoll::plan {

bool share_calls(const Plan& plan, const RankClass& a, const RankClass& b) {
  if (!a.buffers.shares_with(b.buffers) || a.arena != b.arena) return false;
  const auto exists = [&](ProcedureId id) { return id.index < plan.procedures.size(); };
  const auto same_procedure = [&](ProcedureId x, ProcedureId y) {
    return x == y || (exists(x) && exists(y) && same_form(plan.procedures[x], plan.procedures[y]));
  };
  return std::equal(a.programs.begin(), a.programs.end(), b.programs.begin(), b.programs.end(), [&](const Program& x, const Program& y) {
    return x.name == y.name && x.micro_batches == y.micro_batches && x.tokens == y.tokens && x.touches == y.touches &&
           x.streams.shares_with(y.streams) &&
           std::equal(x.procedures.begin(), x.procedures.end(), y.procedures.begin(), y.procedures.end(), same_procedure);
  });
}

}  // namespace plimsoll::plan
