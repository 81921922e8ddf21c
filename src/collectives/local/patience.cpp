#include "collectives/local/patience.h"

#include "base/error.h"

namespace plimsoll::collectives::local {

Patience::Patience(const Group& group, const Call& call, Watch& watch, const Limits& limits)
    : group_(group), call_(call), watch_(watch), limit_(limits.progress), start_(std::chrono::steady_clock::now()) {}

void Patience::look() const {
  const int other[] = {group_.members()[static_cast<std::size_t>(call_.other)]};
  if (const auto why = watch_.lost(other)) fail(*why);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start_;
  if (waited.count() <= limit_) return;
  const char* what = call_.operation == Operation::send ? "took no message" : "sent nothing";
  fail(fmt::format("rank {} {} within the limit of {:g} s", other[0], what, limit_));
}

void Patience::fail(const std::string& clause) const {
  base::fail(base::ErrorKind::peer_lost, "rank {} waited in vain in {} of group '{}': {}",
             group_.members()[static_cast<std::size_t>(group_.rank())], to_text(call_), group_.name(), clause);
}

}  // namespace plimsoll::collectives::local
