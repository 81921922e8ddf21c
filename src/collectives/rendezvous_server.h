// Rank 0's side of the rendezvous: one thread that answers every frame at once, and never waits for a connection that does not go on. See
// rendezvous.h; what is answered is in rendezvous_book.h.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/frames.h"
#include "collectives/launch.h"
#include "collectives/rendezvous.h"
#include "collectives/rendezvous_book.h"
#include "collectives/socket.h"

namespace plimsoll::collectives {

class RendezvousServer {
 public:
  // `lost`: not empty when rank 0 has failed already, and is here to tell so.
  RendezvousServer(const Launch& launch, const Rendezvous::Options& options, Socket listener = {}, const std::string& lost = "");
  ~RendezvousServer();

  // Ranks that came and said farewell.
  int left() const { return left_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Peer {
    Socket socket;
    FrameReader frames{kLongestHello};
    RendezvousBook::Guest guest{};
    Time heard;
    Time came;
  };

  void serve(const std::stop_token& stop);
  void poll_once();
  void accept_all();
  // False when the connection is of no more use.
  bool hear(Peer& peer);
  bool answer(Peer& peer, const std::string& frame);
  void gone(const Peer& peer);
  void refuse(const Peer& peer, const std::string& why);
  void look_for_losses();
  void turn_away_the_silent();

  Launch launch_;
  Rendezvous::Options options_;
  Socket listener_;
  std::vector<Peer> peers_;
  RendezvousBook book_;
  int refused_ = 0;
  Time start_;
  Time looked_;
  std::atomic<int> left_{0};
  std::jthread thread_;
};

}  // namespace plimsoll::collectives
