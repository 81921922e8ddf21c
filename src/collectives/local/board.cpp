#include "collectives/local/board.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "collectives/compare.h"

namespace plimsoll::collectives::local {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBroken = 1u << 15;
constexpr std::uint32_t kArrivals = kBroken - 1;
constexpr int kSpins = 200;  // a few microseconds: longer than a wake-up costs would take a core from whoever computes

constexpr std::uint32_t generation_of(std::uint32_t state) { return state >> 16; }

std::size_t rounded_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::size_t Board::bytes(int members) {
  const auto count = static_cast<std::size_t>(members);
  return sizeof(Head) + count * sizeof(Slot) + rounded_to_line(count * count * 4 * sizeof(std::int64_t));
}

Board::Board(std::byte* memory, const Seat& seat)
    : seat_(seat),
      size_(seat.members.size()),
      head_(reinterpret_cast<Head*>(memory)),
      slots_(reinterpret_cast<Slot*>(memory + sizeof(Head))),
      counts_(reinterpret_cast<std::int64_t*>(memory + sizeof(Head) + seat.members.size() * sizeof(Slot))) {
  PLIMSOLL_CHECK(size_ < kArrivals, "a group of {} ranks", size_);
}

void Board::pin(const Call& call, Pinned& pinned) {
  std::array<std::uint64_t, sizeof(Call) / 8> words;
  std::memcpy(words.data(), &call, sizeof call);
  for (std::size_t i = 0; i < words.size(); ++i) pinned[i].store(words[i], std::memory_order_relaxed);
}

Call Board::read(const Pinned& pinned) {
  std::array<std::uint64_t, sizeof(Call) / 8> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = pinned[i].load(std::memory_order_relaxed);
  return std::bit_cast<Call>(words);
}

void Board::open(const Call& call, Counts counts, Counts wanted) {
  current_ = call;
  pin(call, slot(seat_.member).call[turn()]);
  std::int64_t* own = counts_at(seat_.member);
  std::copy(counts.begin(), counts.end(), own);
  std::copy(wanted.begin(), wanted.end(), own + size_);
  arrive(call, true);
  std::vector<Call> calls;
  calls.reserve(size_);
  for (std::size_t i = 0; i < size_; ++i) calls.push_back(read(slots_[i].call[turn()]));
  compare_calls(seat_.group, seat_.members, calls);
  if (counts.empty()) return;
  compare_counts(seat_.group, seat_.members, call,
                 {[this](int member) { return this->counts(member); }, [this](int member) { return this->wanted(member); }});
}

void Board::arrive(const Call& call, bool may_give_up) {
  slot(seat_.member).arrivals.fetch_add(1, std::memory_order_relaxed);
  std::uint32_t state = head_->state.load(std::memory_order_acquire);
  for (;;) {
    if ((state & kBroken) != 0) fail_lost(call, why_broken());
    const bool last = (state & kArrivals) + 1 == size_;
    const std::uint32_t next = last ? (generation_of(state) + 1) << 16 : state + 1;
    if (!head_->state.compare_exchange_weak(state, next, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!last) return wait(generation_of(state), call, may_give_up);
    if (size_ > 1) wake_all(head_->state);
    return;
  }
}

void Board::wait(std::uint32_t generation, const Call& call, bool may_give_up) {
  const auto passed = [&](std::uint32_t state) { return generation_of(state) != generation; };
  for (int i = 0; seat_.spins && i < kSpins; ++i) {
    if (passed(head_->state.load(std::memory_order_acquire))) return;
    relax();
  }
  const auto start = Clock::now();
  for (;;) {
    const std::uint32_t state = head_->state.load(std::memory_order_acquire);
    if (passed(state)) return;
    if (may_give_up) {
      const std::vector<int> late = absent();
      std::optional<std::string> why = seat_.watch->lost(late);
      if (!why && (state & kBroken) != 0) why = why_broken();
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      if (!why && waited > seat_.limits.progress) {
        why = fmt::format("{} within the limit of {:g} s", late_text(late), seat_.limits.progress);
      }
      // Somebody may have completed the meeting meanwhile: then it takes place.
      if (why && give_up(generation)) fail_lost(call, *why);
      if (why) return;
    }
    wait_while(head_->state, state, kLook);
  }
}

bool Board::give_up(std::uint32_t generation) {
  std::uint32_t state = head_->state.load(std::memory_order_acquire);
  while (generation_of(state) == generation) {
    if (head_->state.compare_exchange_weak(state, state | kBroken, std::memory_order_acq_rel, std::memory_order_acquire)) {
      wake_all(head_->state);
      return true;
    }
  }
  return false;
}

// Somebody gave up: for a loss that we can see as well, or for lack of patience.
std::string Board::why_broken() const {
  const std::vector<int> late = absent();
  return seat_.watch->lost(late).value_or(late_text(late));
}

std::vector<int> Board::absent() const {
  const std::uint64_t own = slot(seat_.member).arrivals.load(std::memory_order_relaxed);
  std::vector<int> ranks;
  for (std::size_t i = 0; i < size_; ++i) {
    if (slots_[i].arrivals.load(std::memory_order_relaxed) < own) ranks.push_back(seat_.members[i]);
  }
  return ranks;
}

Call Board::last_call(const Slot& slot) const {
  const Call one = read(slot.call[0]);
  const Call two = read(slot.call[1]);
  return one.sequence > two.sequence ? one : two;
}

std::string Board::late_text(const std::vector<int>& late) const {
  if (late.empty()) return "another member gave up waiting";
  std::vector<std::string> texts;
  for (const int rank : late) {
    const auto member = std::find(seat_.members.begin(), seat_.members.end(), rank) - seat_.members.begin();
    texts.push_back(fmt::format("rank {} (its last call here: {})", rank, to_text(last_call(slots_[member]))));
  }
  return fmt::format("{} did not come", fmt::join(texts, ", "));
}

void Board::fail_lost(const Call& call, const std::string& clause) const {
  base::fail(base::ErrorKind::peer_lost, "rank {} waited in vain in {} of group '{}': {}",
             seat_.members[static_cast<std::size_t>(seat_.member)], to_text(call), seat_.group, clause);
}

void Board::count(int from, int to, std::int64_t bytes) {
  slot(from).sent.fetch_add(bytes, std::memory_order_relaxed);
  slot(to).received.fetch_add(bytes, std::memory_order_relaxed);
}

Traffic Board::traffic(int member) const {
  return {slot(member).sent.load(std::memory_order_relaxed), slot(member).received.load(std::memory_order_relaxed)};
}

}  // namespace plimsoll::collectives::local
