// A group of processes of one machine. Data goes through windows of shared memory, a piece at a time: pieces are small enough to
// stay in the processors' caches, so main memory is read and written about as often as among threads.
#pragma once

#include <memory>
#include <vector>

#include "collectives/group.h"
#include "collectives/local/board.h"
#include "collectives/local/shared_mailbox.h"

namespace plimsoll::collectives::local {

class ProcessGroup final : public Group {
 public:
  struct Options {
    std::vector<int> ranks;
    int member = 0;
    std::uint64_t key = 0;  // the same for all members, another for every group
    Limits limits;
    bool spins = false;
  };
  ProcessGroup(std::string name, const Options& options, std::shared_ptr<SharedMemory> memory, std::shared_ptr<Watch> watch);
  ~ProcessGroup() override;

  Traffic traffic() const override { return board_.traffic(rank()); }

 private:
  void do_all_reduce(const Call& call, Input in, Output out) override;
  void do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) override;
  void do_all_gather(const Call& call, Input in, Output out, Counts counts) override;
  void do_broadcast(const Call& call, Output data) override;
  void do_reduce(const Call& call, Input in, Output out) override;
  void do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) override;
  void do_barrier(const Call& call) override;
  void do_send(const Call& call, Input data) override;
  void do_receive(const Call& call, Output data) override;

  // Offsets from where the group's memory begins.
  struct Layout {
    explicit Layout(int members);
    std::size_t window = 0;  // bytes of one member's window
    std::size_t piece = 0;   // bytes of it that are for one other member
    std::size_t leavers = 0, board = 0, lanes = 0, windows = 0, results = 0, total = 0;
  };
  struct Cut {  // one piece of a part
    std::size_t first = 0;
    std::size_t bytes = 0;
  };
  static Cut cut(std::size_t bytes, std::size_t piece, std::size_t round);
  std::byte* window(int member) const { return base_ + layout_.windows + layout_.window * static_cast<std::size_t>(member); }
  std::byte* result(int member) const { return base_ + layout_.results + layout_.piece * static_cast<std::size_t>(member); }
  Lane& lane(int from, int to) const;
  std::size_t others() const { return static_cast<std::size_t>(size()) - 1; }
  // A member counts what it lays out (once for each that takes it) and what it takes.
  void sent(std::size_t bytes) { board_.count_sent(static_cast<std::int64_t>(bytes)); }
  void received(std::size_t bytes) { board_.count_received(static_cast<std::int64_t>(bytes)); }

  // Reduces piece by piece: this member.s part goes to `own_part`, the others. (unless null) to their places in `whole`.
  struct Parts {
    std::vector<std::size_t> first, bytes;  // of each member's part
  };
  static Parts parts_of(Counts counts, std::size_t element);
  void reduce_parts(const Call& call, Input in, const Parts& parts, std::byte* own_part, std::byte* whole);
  void fold_piece(const Call& call, std::size_t bytes, const std::vector<const std::byte*>& in, std::span<std::byte* const> out);

  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<Watch> watch_;
  Limits limits_;
  Layout layout_;
  std::uint64_t offset_;
  std::byte* base_;
  Board board_;
  std::vector<SharedSender> senders_;      // to each member
  std::vector<SharedReceiver> receivers_;  // from each member
};

}  // namespace plimsoll::collectives::local
