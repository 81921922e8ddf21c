// A group: an ordered set of ranks, seen from one of them, and what they can do together.
//
// Calls block. One thread at a time uses a group; different groups of one rank may be used by different threads at once, and
// the same ranks may form several groups (one for each stream of a plan).
//
// All members make the same collective calls in the same order. Each call carries a sequence number; before any data moves, the
// members compare what they ask for, and a rank that asks for something else is named by all of them (base::Error). A rank that
// died, left, failed or hangs is named too, as peer_lost. After an error a group is of no further use.
//
// Reductions are canonical: element by element a left fold in member order, in f32 for f32, bf16 and f16, with one rounding
// at the end; a mean is the sum times 1/n. So every transport that keeps this order (all but NCCL's default) gives the same
// bits, for any length and any way it is cut.
//
// Bytes a member sends and receives, with S the bytes of the whole tensor, N members and s its own share of S (S/N when shares
// are even):
//   all_reduce      each sends and receives (N-1)s + (S-s)     = 2(N-1)/N S    shares by share_of()
//   reduce_scatter  receives (N-1)s, sends S-s                 = (N-1)/N S
//   all_gather      receives S-s, sends (N-1)s                 = (N-1)/N S
//   broadcast       the root sends (N-1)S, others receive S
//   reduce          the root receives (N-1)S, others send S
//   all_to_all      what is meant for others, and what comes from others
//
// Messages: `send` does not wait for the receiver; the transport keeps a copy until it is received. Messages from one member to
// another with the same tag arrive in the order in which they were sent. So a pipeline in which every receive has a send that does
// not itself come after that receive cannot deadlock, however sends and receives are interleaved. NCCL differs: see nccl/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "collectives/call.h"
#include "collectives/call_log.h"

namespace plimsoll::collectives {

struct Traffic {
  std::int64_t sent = 0;  // bytes
  std::int64_t received = 0;
  bool operator==(const Traffic&) const = default;
};

// The part of `count` elements that falls to `member` of `members` when they are shared evenly: the first count % members
// members have one more.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Share share_of(std::int64_t count, int members, int member);

using Input = std::span<const std::byte>;
using Output = std::span<std::byte>;
using Counts = std::span<const std::int64_t>;  // elements, one for each member; zero is allowed

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }  // this member's position in members()
  int size() const { return static_cast<int>(members_.size()); }
  std::span<const int> members() const { return members_; }  // ranks of the transport, in order
  const std::string& name() const { return name_; }

  // `in` and `out` are the same memory or do not overlap.
  void all_reduce(Input in, Output out, base::DType dtype, Reduction reduction);
  // `in` holds all members' parts one after another, `out` this one's. `out` may be its own place in `in`.
  void reduce_scatter(Input in, Output out, Counts counts, base::DType dtype, Reduction reduction);
  // `in` is this member's part, `out` holds all parts one after another. `in` may be its own place in `out`.
  void all_gather(Input in, Output out, Counts counts, base::DType dtype);
  void broadcast(Output data, base::DType dtype, int root);
  // `out` is used on the root only, where it may be `in`; others may give an empty one.
  void reduce(Input in, Output out, base::DType dtype, Reduction reduction, int root);
  // Part p of `in` goes to member p; part p of `out` comes from it. They do not overlap.
  void all_to_all(Input in, Counts in_counts, Output out, Counts out_counts, base::DType dtype);
  void barrier();

  void send(Input data, int to, int tag);
  void receive(Output data, int from, int tag);

  // Every call from now on is noted there.
  void record_in(std::shared_ptr<CallLog> log) { log_ = std::move(log); }

  virtual Traffic traffic() const = 0;  // of this member, since the group was made
  std::uint64_t calls() const { return sequence_; }

 protected:
  Group(std::string name, std::vector<int> members, int rank);

  // Called with arguments that fit each other; `call` is what to publish. Sizes that differ between members are theirs to find.
  virtual void do_all_reduce(const Call& call, Input in, Output out) = 0;
  virtual void do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) = 0;
  virtual void do_all_gather(const Call& call, Input in, Output out, Counts counts) = 0;
  virtual void do_broadcast(const Call& call, Output data) = 0;
  virtual void do_reduce(const Call& call, Input in, Output out) = 0;
  virtual void do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) = 0;
  virtual void do_barrier(const Call& call) = 0;
  virtual void do_send(const Call& call, Input data) = 0;
  virtual void do_receive(const Call& call, Output data) = 0;

  // Throws when a message that came for `call` has another length than was expected.
  void check_length(const Call& call, std::size_t found) const;

 private:
  class Noted;
  Call next_call(Operation operation, base::DType dtype, std::size_t bytes);

  std::shared_ptr<CallLog> log_;
  std::string name_;
  std::vector<int> members_;
  int rank_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace plimsoll::collectives
