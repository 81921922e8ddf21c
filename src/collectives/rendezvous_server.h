// Rank 0's side of the rendezvous: one thread that answers every frame at once. See rendezvous.h.
//
// A frame from a rank is a verb, a key and a value; each is answered by a good or bad word and a text:
//   h rank, "ranks token"   hello; bad: why this rank is turned away
//   s key, value            set
//   g key                   get; bad: not set
//   b                       a sign of life; the answer is the loss, if there is one
//   l reason                this rank is lost
//   x                       farewell
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "collectives/launch.h"
#include "collectives/rendezvous.h"
#include "collectives/socket.h"

namespace plimsoll::collectives {

class RendezvousServer {
 public:
  RendezvousServer(const Launch& launch, const Rendezvous::Options& options);
  ~RendezvousServer();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Peer {
    Socket socket;
    int rank = -1;  // before its hello
    Time heard;
    bool left = false;
  };
  struct Answer {
    bool good = true;
    std::string text;
  };

  void serve(const std::stop_token& stop);
  void poll_once();
  // False when the connection is of no more use.
  bool hear(Peer& peer);
  Answer answer(Peer& peer, char verb, const std::string& key, const std::string& value);
  Answer hello(Peer& peer, const std::string& key, const std::string& value);
  void look_for_losses();
  void lose(int rank, const std::string& reason);
  std::string missing() const;

  Launch launch_;
  Rendezvous::Options options_;
  Socket listener_;
  std::vector<Peer> peers_;
  std::map<std::string, std::string> texts_;
  std::vector<bool> joined_;
  std::string loss_;
  Time start_;
  Time looked_;
  std::jthread thread_;
};

inline constexpr const char* kAllJoined = "all ranks have joined";

}  // namespace plimsoll::collectives
