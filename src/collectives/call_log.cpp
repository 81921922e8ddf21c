#include "collectives/call_log.h"

#include <chrono>

#include <fmt/format.h>

namespace plimsoll::collectives {

namespace {

double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint64_t CallLog::begin(const std::string& group, const Call& call) {
  const std::lock_guard lock(mutex_);
  if (ring_.size() < kKept) ring_.emplace_back();
  Entry& entry = ring_[count_ % kKept];
  entry.call = call;
  entry.group = group;
  entry.began = unix_seconds();
  entry.ended = 0.0;
  return count_++;
}

void CallLog::end(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number + kKept >= count_) ring_[number % kKept].ended = unix_seconds();
}

std::vector<CallLog::Entry> CallLog::last() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  const std::uint64_t first = count_ - ring_.size();
  for (std::uint64_t number = first; number < count_; ++number) entries.push_back(ring_[number % kKept]);
  return entries;
}

std::uint64_t CallLog::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::string CallLog::text(int rank, int ranks) const {
  const std::vector<Entry> entries = last();
  std::string text = fmt::format(
      "The last {} of {} calls of rank {} of {}, oldest first: when each began (unix seconds), how long it took, its group, what it was.\n",
      entries.size(), count(), rank, ranks);
  for (const Entry& entry : entries) {
    const std::string took = entry.ended > 0.0 ? fmt::format("{:.6f} s", entry.ended - entry.began) : "not over";
    text += fmt::format("{:.6f}  {:>12}  {}  {}\n", entry.began, took, entry.group, to_text(entry.call));
  }
  return text;
}

}  // namespace plimsoll::collectives
