#include "collectives/mpi/group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "collectives/compare.h"
#include "collectives/fold.h"
#include "collectives/mpi/alarm.h"

namespace plimsoll::collectives::mpi {

namespace {

enum Tag { calls_tag = 1, parts_tag, results_tag };

constexpr std::size_t kPiece = std::size_t{256} << 10;  // bytes of one member's part in one round

struct Cut {
  std::size_t first = 0;
  std::size_t bytes = 0;
};

Cut cut(std::size_t bytes, std::size_t round) {
  const std::size_t first = std::min(bytes, kPiece * round);
  return {first, std::min(kPiece, bytes - first)};
}

struct Parts {
  std::vector<std::size_t> first, bytes;
};

Parts parts_of(Counts counts, base::DType dtype) {
  Parts parts;
  std::size_t first = 0;
  for (const std::int64_t count : counts) {
    parts.first.push_back(first);
    parts.bytes.push_back(static_cast<std::size_t>(count * base::size_of(dtype)));
    first += parts.bytes.back();
  }
  return parts;
}

void fold_members(const Call& call, std::span<const std::byte* const> in, std::byte* out, std::size_t bytes) {
  std::byte* const outs[] = {out};
  fold({.in = in,
        .out = outs,
        .count = static_cast<std::int64_t>(bytes) / base::size_of(call.dtype),
        .dtype = call.dtype,
        .reduction = call.reduction,
        .members = static_cast<int>(in.size())});
}

void copy(std::byte* to, Input from) {
  if (!from.empty() && to != from.data()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

MpiGroup::MpiGroup(std::string name, std::vector<int> ranks, int member, std::shared_ptr<World> world)
    : Group(std::move(name), std::move(ranks), member), world_(std::move(world)) {
  const Alarm alarm(world_->limits().progress,
                    fmt::format("rank {} waited in vain in the making of group '{}'", world_->rank(), this->name()),
                    [this] { return world_->loss_by_silence(); });
  const auto guard = world_->lock();
  MPI_Group everybody = MPI_GROUP_NULL, ours = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &everybody);
  check(MPI_Group_incl(everybody, size(), members().data(), &ours), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, ours, 0, &collective_), "MPI_Comm_create_group");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, ours, 0, &messages_), "MPI_Comm_create_group");
  MPI_Group_free(&ours);
  MPI_Group_free(&everybody);
  // Communicators are not freed: that is collective, and groups go away when a rank fails alone. A run makes a few dozen.
}

std::string MpiGroup::waiting_in(const Call& call) const {
  return fmt::format("rank {} waited in vain in {} of group '{}'", members()[static_cast<std::size_t>(rank())], to_text(call), name());
}

void MpiGroup::send(Flight& flight, int to, int tag, Input data) {
  flight.send(to, tag, data);
  traffic_.sent += static_cast<std::int64_t>(data.size());
}

void MpiGroup::receive(Flight& flight, int from, int tag, Output data) {
  flight.receive(from, tag, data);
  traffic_.received += static_cast<std::int64_t>(data.size());
}

std::byte* MpiGroup::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void MpiGroup::meet(const Call& call, Counts counts, Counts wanted) {
  const auto members_count = static_cast<std::size_t>(size());
  const auto own = static_cast<std::size_t>(rank());
  const std::size_t numbers = 2 * members_count;
  const std::size_t bytes = sizeof(Call) + numbers * sizeof(std::int64_t);  // the same for every call: members may ask for different ones
  std::vector<std::byte> said(bytes * members_count);
  std::byte* mine = said.data() + own * bytes;
  std::memcpy(mine, &call, sizeof call);
  if (!counts.empty()) std::memcpy(mine + sizeof call, counts.data(), counts.size_bytes());
  if (!wanted.empty()) std::memcpy(mine + sizeof call + counts.size_bytes(), wanted.data(), wanted.size_bytes());
  Flight talk = flight();
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    talk.receive(member, calls_tag, std::span(said).subspan(static_cast<std::size_t>(member) * bytes, bytes));
    talk.send(member, calls_tag, {mine, bytes});
  }
  talk.land(waiting_in(call), members());
  std::vector<Call> calls(members_count);
  std::vector<std::int64_t> all(numbers * members_count);
  for (std::size_t i = 0; i < members_count; ++i) {
    std::array<std::byte, sizeof(Call)> raw;
    std::memcpy(raw.data(), said.data() + i * bytes, sizeof(Call));
    calls[i] = std::bit_cast<Call>(raw);
    std::memcpy(all.data() + i * numbers, said.data() + i * bytes + sizeof(Call), numbers * sizeof(std::int64_t));
  }
  compare_calls(name(), members(), calls);
  if (counts.empty()) return;
  const auto pinned = [&](std::size_t half) {
    return [&, half](int member) {
      return Counts(all).subspan(static_cast<std::size_t>(member) * numbers + half * members_count, members_count);
    };
  };
  compare_counts(name(), members(), call, {pinned(0), pinned(1)});
}

// Round by round: everybody sends each other member a piece of that one's part, each folds the piece of its own part, and, where
// all want the whole, sends the result to everybody. The next round's pieces are received while this one's are folded.
void MpiGroup::reduce_parts(const Call& call, Input in, Counts counts, std::byte* own_part, std::byte* whole) {
  const Parts parts = parts_of(counts, call.dtype);
  const auto me = static_cast<std::size_t>(rank());
  const auto members_count = static_cast<std::size_t>(size());
  const std::size_t rounds = (*std::max_element(parts.bytes.begin(), parts.bytes.end()) + kPiece - 1) / kPiece;
  std::byte* const landing = scratch(2 * members_count * kPiece);
  const auto place = [&](std::size_t round, std::size_t from) { return landing + (round % 2 * members_count + from) * kPiece; };
  std::array<Flight, 2> incoming{flight(), flight()};
  const auto expect = [&](std::size_t round) {
    const Cut own = cut(parts.bytes[me], round);
    for (std::size_t from = 0; from < members_count; ++from) {
      if (from != me) receive(incoming[round % 2], static_cast<int>(from), parts_tag, {place(round, from), own.bytes});
    }
  };
  Flight results = flight();
  expect(0);
  for (std::size_t round = 0; round < rounds; ++round) {
    Flight outgoing = flight();
    for (std::size_t step = 1; step < members_count; ++step) {
      const std::size_t to = (me + step) % members_count;
      const Cut piece = cut(parts.bytes[to], round);
      send(outgoing, static_cast<int>(to), parts_tag, in.subspan(parts.first[to] + piece.first, piece.bytes));
    }
    if (round + 1 < rounds) expect(round + 1);
    land(incoming[round % 2], call);
    const Cut own = cut(parts.bytes[me], round);
    std::vector<const std::byte*> ins;
    for (std::size_t from = 0; from < members_count; ++from) {
      ins.push_back(from == me ? in.data() + parts.first[me] + own.first : place(round, from));
    }
    fold_members(call, ins, own_part + own.first, own.bytes);
    land(outgoing, call);  // from here on the others' pieces of `in` may be overwritten: it may be `whole`
    if (whole == nullptr) continue;
    land(results, call);
    for (std::size_t step = 1; step < members_count; ++step) {
      const std::size_t other = (me + step) % members_count;
      const Cut piece = cut(parts.bytes[other], round);
      receive(results, static_cast<int>(other), results_tag, {whole + parts.first[other] + piece.first, piece.bytes});
      send(results, static_cast<int>(other), results_tag, {own_part + own.first, own.bytes});
    }
  }
  land(results, call);
}

void MpiGroup::do_all_reduce(const Call& call, Input in, Output out) {
  meet(call);
  std::vector<std::int64_t> counts;
  for (int member = 0; member < size(); ++member) counts.push_back(share_of(call.count, size(), member).count);
  const std::int64_t first = share_of(call.count, size(), rank()).first * base::size_of(call.dtype);
  reduce_parts(call, in, counts, out.data() + first, out.data());
}

void MpiGroup::do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) {
  meet(call, counts, counts);
  reduce_parts(call, in, counts, out.data(), nullptr);
}

void MpiGroup::do_all_gather(const Call& call, Input in, Output out, Counts counts) {
  meet(call, counts, counts);
  const Parts parts = parts_of(counts, call.dtype);
  Flight all = flight();
  copy(out.data() + parts.first[static_cast<std::size_t>(rank())], in);
  for (int member = 0; member < size(); ++member) {
    const auto index = static_cast<std::size_t>(member);
    if (member == rank()) continue;
    receive(all, member, parts_tag, out.subspan(parts.first[index], parts.bytes[index]));
    send(all, member, parts_tag, in);
  }
  land(all, call);
}

void MpiGroup::do_broadcast(const Call& call, Output data) {
  meet(call);
  Flight all = flight();
  for (int member = 0; member < size() && rank() == call.other; ++member) {
    if (member != rank()) send(all, member, parts_tag, data);
  }
  if (rank() != call.other) receive(all, call.other, parts_tag, data);
  land(all, call);
}

void MpiGroup::do_reduce(const Call& call, Input in, Output out) {
  meet(call);
  const auto root = static_cast<std::size_t>(call.other);
  const std::size_t rounds = (in.size() + kPiece - 1) / kPiece;
  const auto members_count = static_cast<std::size_t>(size());
  std::byte* const landing = scratch(members_count * kPiece);
  for (std::size_t round = 0; round < rounds; ++round) {
    const Cut piece = cut(in.size(), round);
    Flight all = flight();
    if (rank() != call.other) {
      send(all, call.other, parts_tag, in.subspan(piece.first, piece.bytes));
      land(all, call);
      continue;
    }
    std::vector<const std::byte*> ins;
    for (std::size_t from = 0; from < members_count; ++from) {
      ins.push_back(from == root ? in.data() + piece.first : landing + from * kPiece);
      if (from != root) receive(all, static_cast<int>(from), parts_tag, {landing + from * kPiece, piece.bytes});
    }
    land(all, call);
    fold_members(call, ins, out.data() + piece.first, piece.bytes);
  }
}

void MpiGroup::do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) {
  meet(call, in_counts, out_counts);
  const Parts ins = parts_of(in_counts, call.dtype);
  const Parts outs = parts_of(out_counts, call.dtype);
  const auto me = static_cast<std::size_t>(rank());
  copy(out.data() + outs.first[me], in.subspan(ins.first[me], ins.bytes[me]));
  Flight all = flight();
  for (std::size_t step = 1; step < ins.bytes.size(); ++step) {
    const std::size_t other = (me + step) % ins.bytes.size();
    receive(all, static_cast<int>(other), parts_tag, out.subspan(outs.first[other], outs.bytes[other]));
    send(all, static_cast<int>(other), parts_tag, in.subspan(ins.first[other], ins.bytes[other]));
  }
  land(all, call);
}

void MpiGroup::do_barrier(const Call& call) { meet(call); }

void MpiGroup::forget_sent() {
  for (auto sent = under_way_.begin(); sent != under_way_.end();) {
    if (sent->flight.landed()) {
      spares_.push_back(std::move(sent->copy));
      sent = under_way_.erase(sent);
    } else {
      ++sent;
    }
  }
}

// A message is its length and then its bytes: the receiver finds another length before it receives into too little memory.
void MpiGroup::do_send(const Call& call, Input data) {
  PLIMSOLL_CHECK(call.tag >= 0 && call.tag <= world_->largest_tag(), "MPI has no tag {}", call.tag);
  if (const auto why = world_->lost({})) base::fail(base::ErrorKind::peer_lost, "{}: {}", waiting_in(call), *why);
  forget_sent();
  std::vector<std::byte> copy_of;
  if (!spares_.empty()) {
    copy_of = std::move(spares_.back());
    spares_.pop_back();
  }
  const std::uint64_t length = data.size();
  copy_of.resize(sizeof length + data.size());
  std::memcpy(copy_of.data(), &length, sizeof length);
  if (!data.empty()) std::memcpy(copy_of.data() + sizeof length, data.data(), data.size());
  under_way_.push_back({std::move(copy_of), Flight(*world_, messages_)});
  Sent& sent = under_way_.back();
  sent.flight.send(call.other, call.tag, std::span(sent.copy).first(sizeof length));
  sent.flight.send(call.other, call.tag, std::span(sent.copy).subspan(sizeof length));
  traffic_.sent += static_cast<std::int64_t>(data.size());
}

void MpiGroup::do_receive(const Call& call, Output data) {
  std::uint64_t length = 0;
  Flight head(*world_, messages_);
  head.receive(call.other, call.tag, std::as_writable_bytes(std::span(&length, 1)));
  head.land(waiting_in(call), members());
  check_length(call, length);
  Flight body(*world_, messages_);
  body.receive(call.other, call.tag, data);
  body.land(waiting_in(call), members());
  traffic_.received += static_cast<std::int64_t>(data.size());
}

}  // namespace plimsoll::collectives::mpi
