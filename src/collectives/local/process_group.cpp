#include "collectives/local/process_group.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "collectives/fold.h"
#include "collectives/local/patience.h"

namespace plimsoll::collectives::local {

namespace {

constexpr std::size_t kWindow = std::size_t{1} << 20;
constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t rounds_for(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }

Board::Seat seat_for(const Group& group, const ProcessGroup::Options& options, Watch* watch) {
  return {.members = group.members(),
          .group = group.name(),
          .member = options.member,
          .limits = options.limits,
          .watch = watch,
          .close_gives_up = true,
          .spins = options.spins};
}

}  // namespace

ProcessGroup::Layout::Layout(int members) {
  const auto count = static_cast<std::size_t>(members);
  piece = std::max(rounded(kWindow / count, kLine), std::size_t{4096});
  window = piece * count;
  board = kLine;  // leavers before it
  lanes = rounded(board + Board::bytes(members), 4096);
  windows = rounded(lanes + count * count * sizeof(Lane), 4096);
  results = windows + window * count;
  total = results + piece * count;
}

ProcessGroup::ProcessGroup(std::string name, const Options& options, std::shared_ptr<SharedMemory> memory, std::shared_ptr<Watch> watch)
    : Group(std::move(name), options.ranks, options.member),
      memory_(std::move(memory)),
      watch_(std::move(watch)),
      limits_(options.limits),
      layout_(size()),
      offset_(memory_->find_or_allocate(options.key, layout_.total)),
      base_(memory_->at(offset_)),
      board_(base_ + layout_.board, seat_for(*this, options, watch_.get())) {
  for (int member = 0; member < size(); ++member) {
    senders_.emplace_back(*memory_, lane(rank(), member));
    receivers_.emplace_back(*memory_, lane(member, rank()));
  }
}

// The last to leave gives the windows' pages back.
ProcessGroup::~ProcessGroup() {
  Word& leavers = *reinterpret_cast<Word*>(base_ + layout_.leavers);
  if (leavers.fetch_add(1) + 1 == static_cast<std::uint32_t>(size())) memory_->release_pages(offset_, layout_.total);
}

Lane& ProcessGroup::lane(int from, int to) const {
  const auto index = static_cast<std::size_t>(from) * static_cast<std::size_t>(size()) + static_cast<std::size_t>(to);
  return reinterpret_cast<Lane*>(base_ + layout_.lanes)[index];
}

ProcessGroup::Cut ProcessGroup::cut(std::size_t bytes, std::size_t piece, std::size_t round) {
  const std::size_t first = std::min(bytes, piece * round);
  return {first, std::min(piece, bytes - first)};
}

ProcessGroup::Parts ProcessGroup::parts_of(Counts counts, std::size_t element) {
  Parts parts;
  std::size_t first = 0;
  for (const std::int64_t count : counts) {
    parts.first.push_back(first);
    parts.bytes.push_back(static_cast<std::size_t>(count) * element);
    first += parts.bytes.back();
  }
  return parts;
}

void ProcessGroup::fold_piece(const Call& call, std::size_t bytes, const std::vector<const std::byte*>& in,
                              std::span<std::byte* const> out) {
  fold({.in = in,
        .out = out,
        .count = static_cast<std::int64_t>(bytes) / base::size_of(call.dtype),
        .dtype = call.dtype,
        .reduction = call.reduction,
        .members = size()});
  received(bytes * others());
}

// Round by round: everybody lays out a piece of each other member's part, each folds the piece of its own part, and, where all want
// the whole, everybody takes the others' results.
void ProcessGroup::reduce_parts(const Call& call, Input in, const Parts& parts, std::byte* own_part, std::byte* whole) {
  const auto me = static_cast<std::size_t>(rank());
  const auto members = static_cast<std::size_t>(size());
  const std::size_t rounds = rounds_for(*std::max_element(parts.bytes.begin(), parts.bytes.end()), layout_.piece);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t to = 0; to < members; ++to) {
      const Cut piece = cut(parts.bytes[to], layout_.piece, round);
      if (to != me && piece.bytes != 0) {
        std::memcpy(window(rank()) + to * layout_.piece, in.data() + parts.first[to] + piece.first, piece.bytes);
        sent(piece.bytes);
      }
    }
    board_.sync();
    const Cut own = cut(parts.bytes[me], layout_.piece, round);
    std::vector<const std::byte*> ins;
    for (std::size_t from = 0; from < members; ++from) {
      ins.push_back(from == me ? in.data() + parts.first[me] + own.first : window(static_cast<int>(from)) + me * layout_.piece);
    }
    std::byte* const outs[] = {own_part + own.first, result(rank())};
    if (own.bytes != 0) fold_piece(call, own.bytes, ins, std::span(outs).first(whole == nullptr ? 1 : 2));
    if (whole == nullptr && round + 1 == rounds) break;  // whoever lays out the next pieces has met the others first
    board_.sync();
    if (whole != nullptr) sent(own.bytes * others());
    for (std::size_t from = 0; whole != nullptr && from < members; ++from) {
      const Cut piece = cut(parts.bytes[from], layout_.piece, round);
      if (from == me || piece.bytes == 0) continue;
      std::memcpy(whole + parts.first[from] + piece.first, result(static_cast<int>(from)), piece.bytes);
      received(piece.bytes);
    }
  }
}

void ProcessGroup::do_all_reduce(const Call& call, Input in, Output out) {
  board_.open(call);
  std::vector<std::int64_t> counts;
  for (int member = 0; member < size(); ++member) counts.push_back(share_of(call.count, size(), member).count);
  const Parts parts = parts_of(counts, static_cast<std::size_t>(base::size_of(call.dtype)));
  reduce_parts(call, in, parts, out.data() + parts.first[static_cast<std::size_t>(rank())], out.data());
}

void ProcessGroup::do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) {
  board_.open(call, counts);
  reduce_parts(call, in, parts_of(counts, static_cast<std::size_t>(base::size_of(call.dtype))), out.data(), nullptr);
}

void ProcessGroup::do_all_gather(const Call& call, Input in, Output out, Counts counts) {
  board_.open(call, counts);
  const Parts parts = parts_of(counts, static_cast<std::size_t>(base::size_of(call.dtype)));
  const auto me = static_cast<std::size_t>(rank());
  std::byte* own = out.data() + parts.first[me];
  if (own != in.data() && !in.empty()) std::memcpy(own, in.data(), in.size());
  const std::size_t rounds = rounds_for(*std::max_element(parts.bytes.begin(), parts.bytes.end()), layout_.window);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round > 0) board_.sync();
    const Cut mine = cut(parts.bytes[me], layout_.window, round);
    if (mine.bytes != 0) std::memcpy(window(rank()), in.data() + mine.first, mine.bytes);
    sent(mine.bytes * others());
    board_.sync();
    for (std::size_t from = 0; from < parts.bytes.size(); ++from) {
      const Cut piece = cut(parts.bytes[from], layout_.window, round);
      if (from == me || piece.bytes == 0) continue;
      std::memcpy(out.data() + parts.first[from] + piece.first, window(static_cast<int>(from)), piece.bytes);
      received(piece.bytes);
    }
  }
}

void ProcessGroup::do_broadcast(const Call& call, Output data) {
  board_.open(call);
  const std::size_t rounds = rounds_for(data.size(), layout_.window);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round > 0) board_.sync();
    const Cut piece = cut(data.size(), layout_.window, round);
    if (rank() == call.other) {
      std::memcpy(window(rank()), data.data() + piece.first, piece.bytes);
      sent(piece.bytes * others());
    }
    board_.sync();
    if (rank() == call.other) continue;
    std::memcpy(data.data() + piece.first, window(call.other), piece.bytes);
    received(piece.bytes);
  }
}

void ProcessGroup::do_reduce(const Call& call, Input in, Output out) {
  board_.open(call);
  const std::size_t rounds = rounds_for(in.size(), layout_.window);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round > 0) board_.sync();
    const Cut piece = cut(in.size(), layout_.window, round);
    if (rank() != call.other) {
      std::memcpy(window(rank()), in.data() + piece.first, piece.bytes);
      sent(piece.bytes);
    }
    board_.sync();
    if (rank() != call.other) continue;
    std::vector<const std::byte*> ins;
    for (int member = 0; member < size(); ++member) ins.push_back(member == rank() ? in.data() + piece.first : window(member));
    std::byte* const outs[] = {out.data() + piece.first};
    fold_piece(call, piece.bytes, ins, outs);
  }
}

void ProcessGroup::do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) {
  board_.open(call, in_counts, out_counts);
  const auto element = static_cast<std::size_t>(base::size_of(call.dtype));
  const auto me = static_cast<std::size_t>(rank());
  const Parts ins = parts_of(in_counts, element);
  const Parts outs = parts_of(out_counts, element);
  std::int64_t most = 0;  // of all pairs: all members make the same rounds
  for (int member = 0; member < size(); ++member) most = std::max(most, std::ranges::max(board_.counts(member)));
  const std::size_t rounds = rounds_for(static_cast<std::size_t>(most) * element, layout_.piece);
  if (ins.bytes[me] != 0) std::memcpy(out.data() + outs.first[me], in.data() + ins.first[me], ins.bytes[me]);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round > 0) board_.sync();
    for (std::size_t to = 0; to < ins.bytes.size(); ++to) {
      const Cut piece = cut(ins.bytes[to], layout_.piece, round);
      if (to == me || piece.bytes == 0) continue;
      std::memcpy(window(rank()) + to * layout_.piece, in.data() + ins.first[to] + piece.first, piece.bytes);
      sent(piece.bytes);
    }
    board_.sync();
    for (std::size_t from = 0; from < outs.bytes.size(); ++from) {
      const Cut piece = cut(outs.bytes[from], layout_.piece, round);
      if (from == me || piece.bytes == 0) continue;
      std::memcpy(out.data() + outs.first[from] + piece.first, window(static_cast<int>(from)) + me * layout_.piece, piece.bytes);
      received(piece.bytes);
    }
  }
}

void ProcessGroup::do_barrier(const Call& call) { board_.open(call); }

void ProcessGroup::do_send(const Call& call, Input data) {
  const Patience patience(*this, call, *watch_, limits_);
  senders_[static_cast<std::size_t>(call.other)].put(call.tag, data, [&] { patience.look(); });
  sent(data.size());
}

void ProcessGroup::do_receive(const Call& call, Output data) {
  const Patience patience(*this, call, *watch_, limits_);
  const std::size_t found = receivers_[static_cast<std::size_t>(call.other)].take(call.tag, data, [&] { patience.look(); });
  check_length(call, found);
  received(data.size());
}

}  // namespace plimsoll::collectives::local
