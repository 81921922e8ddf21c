// A group of threads. See threads.h; how members meet is board.h.
#pragma once

#include <memory>
#include <vector>

#include "collectives/group.h"
#include "collectives/local/board.h"
#include "collectives/local/mailbox.h"

namespace plimsoll::collectives::local {

// What the members of one group share.
struct ThreadMeeting {
  explicit ThreadMeeting(int members);
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> board;
  std::vector<Mailbox> boxes;  // one for each receiver
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::string name, std::vector<int> ranks, int member, std::shared_ptr<ThreadMeeting> meeting, std::shared_ptr<Watch> watch,
              const Limits& limits);

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

  struct Piece {
    std::int64_t first = 0;  // bytes into what members show
    std::int64_t bytes = 0;
  };
  // Folds a piece of what all members show as input.
  void fold_piece(const Call& call, Piece piece, std::span<std::byte* const> out);
  void copy_from(int member, const std::byte* from, std::byte* to, std::int64_t bytes);

  std::shared_ptr<ThreadMeeting> meeting_;
  std::shared_ptr<Watch> watch_;
  Limits limits_;
  Board board_;
};

}  // namespace plimsoll::collectives::local
