// How ranks on several machines find each other without MPI, and know of each other's fate: rank 0 keeps a small store of texts at
// MASTER_ADDR:MASTER_PORT, all ranks connect to it. It carries no tensors.
//
// Every rank gives a sign of life five times a second. A connection that closes without a farewell is a dead rank, one that is silent
// for Limits::heartbeat a hung one; whichever comes first is told to all with the next sign of life. A rank of another build is a loss of
// the job too. Who does not show the job's token learns nothing, and the others are not disturbed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collectives/launch.h"
#include "collectives/socket.h"
#include "collectives/transport.h"

namespace plimsoll::collectives {

class RendezvousServer;

class Rendezvous {
 public:
  struct Options {
    Limits limits{};
    double join = 60.0;                                     // seconds within which all ranks must have come
    std::function<void(const std::string& text)> say = {};  // hears on rank 0 which connections were refused, on a thread of its own
  };
  // Returns when all ranks have come. Throws bad_input (a port in use, a rank taken twice, another number of ranks, another token, an
  // unknown machine) or peer_lost (ranks that did not come, by number; a rank of another build).
  // `listener`, on rank 0: what it listens with already; else it begins to.
  Rendezvous(const Launch& launch, const Options& options, Socket listener = {});
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key);
  // Waits until somebody has set it; throws peer_lost when a rank is lost or after the progress limit.
  std::string wait(const std::string& key);

  void report_loss(const std::string& reason);  // of this rank: "failed: ..."
  // "rank 2 ..."; nothing while all is well.
  std::optional<std::string> loss();

 private:
  struct Reply {
    char sign = '-';
    std::string text;
  };
  Reply ask(char verb, const std::string& key, const std::string& value);
  void join();
  void beat(const std::stop_token& stop);
  void note_loss(const std::string& text);

  Launch launch_;
  Limits limits_;
  std::unique_ptr<RendezvousServer> server_;  // on rank 0
  std::mutex mutex_;                          // of the connection
  Socket socket_;
  std::mutex loss_mutex_;
  std::optional<std::string> loss_;
  std::jthread heart_;
};

// For a rank that failed before it could meet the others: they hear of it at once, where they have come or come within `seconds`.
void tell_of_early_loss(const Launch& launch, const std::string& reason, double seconds);

}  // namespace plimsoll::collectives
