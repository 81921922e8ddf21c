#include "collectives/local/thread_group.h"

#include <cstring>
#include <new>
#include <numeric>

#include "base/cores.h"
#include "base/error.h"
#include "collectives/fold.h"
#include "collectives/local/patience.h"

namespace plimsoll::collectives::local {

namespace {

constexpr std::align_val_t kBoardAlignment{64};

std::int64_t before(Counts counts, int member) { return std::accumulate(counts.begin(), counts.begin() + member, std::int64_t{0}); }

std::int64_t count_of(Counts counts, int member) { return counts[static_cast<std::size_t>(member)]; }

Board::Seat seat_for(const Group& group, int member, Watch* watch, const Limits& limits) {
  const bool cores_for_all = group.members().size() <= static_cast<std::size_t>(base::usable_cores());
  return {.members = group.members(), .group = group.name(), .member = member, .limits = limits, .watch = watch, .spins = cores_for_all};
}

}  // namespace

ThreadMeeting::ThreadMeeting(int members)
    : board(static_cast<std::byte*>(::operator new(Board::bytes(members), kBoardAlignment))), boxes(static_cast<std::size_t>(members)) {
  std::memset(board.get(), 0, Board::bytes(members));
}

void ThreadMeeting::Free::operator()(std::byte* memory) const { ::operator delete(memory, kBoardAlignment); }

ThreadGroup::ThreadGroup(std::string name, std::vector<int> ranks, int member, std::shared_ptr<ThreadMeeting> meeting,
                         std::shared_ptr<Watch> watch, const Limits& limits)
    : Group(std::move(name), std::move(ranks), member),
      meeting_(std::move(meeting)),
      watch_(std::move(watch)),
      limits_(limits),
      board_(meeting_->board.get(), seat_for(*this, member, watch_.get(), limits)) {}

void ThreadGroup::fold_piece(const Call& call, Piece piece, std::span<std::byte* const> out) {
  std::vector<const std::byte*> in;
  for (int member = 0; member < size(); ++member) {
    in.push_back(board_.shown(member).in + piece.first);
    if (member != rank()) board_.count(member, rank(), piece.bytes);
  }
  fold({.in = in,
        .out = out,
        .count = piece.bytes / base::size_of(call.dtype),
        .dtype = call.dtype,
        .reduction = call.reduction,
        .members = size()});
}

void ThreadGroup::copy_from(int member, const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes != 0 && from != to) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  if (member != rank()) board_.count(member, rank(), bytes);
}

// Each member folds its share of everybody's input straight into everybody's output. In place is safe: nobody else reads or
// writes that share.
void ThreadGroup::do_all_reduce(const Call& call, Input in, Output out) {
  board_.show({in.data(), out.data()});
  board_.open(call);
  const std::int64_t element = base::size_of(call.dtype);
  const Share share = share_of(call.count, size(), rank());
  const Piece piece{share.first * element, share.count * element};
  std::vector<std::byte*> outs;
  for (int member = 0; member < size(); ++member) {
    outs.push_back(board_.shown(member).out + piece.first);
    if (member != rank()) board_.count(rank(), member, piece.bytes);
  }
  fold_piece(call, piece, outs);
  board_.close();
}

void ThreadGroup::do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) {
  board_.show({in.data(), out.data()});
  board_.open(call, counts);
  const std::int64_t element = base::size_of(call.dtype);
  std::byte* const outs[] = {out.data()};
  fold_piece(call, {before(counts, rank()) * element, count_of(counts, rank()) * element}, outs);
  board_.close();
}

void ThreadGroup::do_all_gather(const Call& call, Input in, Output out, Counts counts) {
  board_.show({in.data(), out.data()});
  board_.open(call, counts);
  const std::int64_t element = base::size_of(call.dtype);
  std::byte* to = out.data();
  for (int member = 0; member < size(); ++member) {
    const std::int64_t bytes = count_of(counts, member) * element;
    copy_from(member, board_.shown(member).in, to, bytes);
    to += bytes;
  }
  board_.close();
}

void ThreadGroup::do_broadcast(const Call& call, Output data) {
  board_.show({data.data(), data.data()});
  board_.open(call);
  if (rank() != call.other) copy_from(call.other, board_.shown(call.other).in, data.data(), call.bytes());
  board_.close();
}

void ThreadGroup::do_reduce(const Call& call, Input in, Output out) {
  board_.show({in.data(), out.data()});
  board_.open(call);
  std::byte* const outs[] = {out.data()};
  if (rank() == call.other) fold_piece(call, {0, call.bytes()}, outs);
  board_.close();
}

void ThreadGroup::do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) {
  board_.show({in.data(), out.data()});
  board_.open(call, in_counts, out_counts);
  const std::int64_t element = base::size_of(call.dtype);
  std::byte* to = out.data();
  for (int member = 0; member < size(); ++member) {
    const std::int64_t bytes = count_of(out_counts, member) * element;
    copy_from(member, board_.shown(member).in + before(board_.counts(member), rank()) * element, to, bytes);
    to += bytes;
  }
  board_.close();
}

void ThreadGroup::do_barrier(const Call& call) { board_.open(call); }

void ThreadGroup::do_send(const Call& call, Input data) {
  Patience(*this, call, *watch_, limits_).look();
  meeting_->boxes[static_cast<std::size_t>(call.other)].put(rank(), call.tag, data);
  board_.count_sent(call.bytes());
}

void ThreadGroup::do_receive(const Call& call, Output data) {
  const Patience patience(*this, call, *watch_, limits_);
  Mailbox& box = meeting_->boxes[static_cast<std::size_t>(rank())];
  const std::size_t found = box.take(call.other, call.tag, data, [&] { patience.look(); });
  check_length(call, found);
  board_.count_received(call.bytes());
}

}  // namespace plimsoll::collectives::local
