// Where the members of a group on one machine meet: each pins up what it asks for, waits for the others, compares, moves data, and
// waits again until all are done. It lies in memory that all members see, a heap or shared memory; zeroed memory is a new board.
//
// A meeting has two halves. open() pins up the call and returns when all members have come and ask for the same; from then on
// each may touch what the others have shown. close() returns when all members have closed; from then on nobody touches it. A
// member may give up (somebody is lost) only before a meeting is complete, and then nobody completes it: so no member can be left
// reading the memory of one that has gone away.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/group.h"
#include "collectives/local/wait.h"
#include "collectives/local/watch.h"
#include "collectives/transport.h"

namespace plimsoll::collectives::local {

class Board {
 public:
  // Who stands at the board and how long that member waits.
  struct Seat {
    std::span<const int> members;  // ranks
    std::string_view group;
    int member = 0;
    Limits limits;
    Watch* watch = nullptr;
    bool close_gives_up = false;  // whether a lost rank ends close() too: where data lies in memory that stays
    bool spins = false;           // a little, where every rank has a core
  };

  static std::size_t bytes(int members);
  Board(std::byte* memory, const Seat& seat);

  // Counts are compared too, if there are any. In all_to_all, part p of a member's `counts` must be part `member` of p's `wanted`.
  void open(const Call& call, Counts counts = {}, Counts wanted = {});
  // A meeting in between: all have done what comes before it.
  void sync() { arrive(current_, seat_.close_gives_up); }
  void close() { sync(); }

  // What a member shows the others: valid between open() and close().
  struct Shown {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
  };
  void show(const Shown& shown) { slot(seat_.member).shown = shown; }
  const Shown& shown(int member) const { return slot(member).shown; }
  Counts counts(int member) const { return {counts_at(member), size_}; }
  Counts wanted(int member) const { return {counts_at(member) + size_, size_}; }

  // Bytes that went from one member to another: both sides' counters.
  void count(int from, int to, std::int64_t bytes);
  // One side's counter, for a message.
  void count_sent(std::int64_t bytes) { slot(seat_.member).sent.fetch_add(bytes, std::memory_order_relaxed); }
  void count_received(std::int64_t bytes) { slot(seat_.member).received.fetch_add(bytes, std::memory_order_relaxed); }
  Traffic traffic(int member) const;

 private:
  // A call in words that may be read while they are written, for a message about a member that is late.
  using Pinned = std::array<std::atomic<std::uint64_t>, sizeof(Call) / 8>;
  static_assert(sizeof(Call) % 8 == 0);

  // Calls and counts are kept twice, for even and odd calls: a member may pin up its next call while another still compares this one.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> arrivals;  // at half meetings
    std::array<Pinned, 2> call;
    Shown shown;
    std::atomic<std::int64_t> sent;
    std::atomic<std::int64_t> received;
  };
  struct alignas(64) Head {
    Word state;  // half meetings completed (16 bits), whether one was given up (1), arrivals at the current one (15)
  };

  Slot& slot(int member) const { return slots_[member]; }
  std::size_t turn() const { return current_.sequence % 2; }
  std::int64_t* counts_at(int member) const { return counts_ + (static_cast<std::size_t>(member) * 2 + turn()) * 2 * size_; }
  Call last_call(const Slot& slot) const;
  static void pin(const Call& call, Pinned& pinned);
  static Call read(const Pinned& pinned);

  void arrive(const Call& call, bool may_give_up);
  void wait(std::uint32_t generation, const Call& call, bool may_give_up);
  bool give_up(std::uint32_t generation);
  std::string why_broken() const;
  std::vector<int> absent() const;
  [[noreturn]] void fail_lost(const Call& call, const std::string& clause) const;
  std::string late_text(const std::vector<int>& late) const;

  Seat seat_;
  std::size_t size_;
  Head* head_;
  Slot* slots_;
  std::int64_t* counts_;
  Call current_;
};

}  // namespace plimsoll::collectives::local
