// What rank 0 knows of the ranks that meet, and what it answers to a frame: no sockets and no clock, so that a test can be the network.
//
// A frame is a verb, a key and a value; each is answered by a sign and a text:
//   h rank, greeting        hello; -: why this rank is turned away, !: why the whole job is lost by it
//   f rank, greeting+reason this rank failed before it could meet the others, and does not stay
//   s key, value            set
//   g key                   get; -: not set
//   b                       a sign of life; the answer is the loss, if there is one
//   l reason                this rank is lost
//   x                       farewell
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/launch.h"

namespace plimsoll::collectives {

inline constexpr const char* kAllJoined = "all ranks have joined";
inline constexpr std::uint32_t kLongestHello = 4096;  // of a frame by somebody who has not shown the job's token

// What a rank says of itself when it says hello.
std::string greeting(const Launch& launch);
std::string frame_of(char verb, const std::string& key, const std::string& value);

class RendezvousBook {
 public:
  // One connection.
  struct Guest {
    int rank = -1;  // before its hello
    bool left = false;
  };
  struct Answer {
    char sign = '+';
    std::string text;
  };

  explicit RendezvousBook(const Launch& launch) : launch_(launch), joined_(static_cast<std::size_t>(launch.ranks)) {}

  // Nothing when it is no frame of ours, and nobody should answer.
  std::optional<Answer> answer(Guest& guest, std::string frame);

  bool complete() const { return texts_.find(kAllJoined) != texts_.end(); }
  std::vector<int> missing() const;  // ranks
  // The first loss stays.
  void lose(int rank, const std::string& reason);
  void lose(const std::string& text);
  const std::string& loss() const { return loss_; }

 private:
  // Why a greeting is not that of a rank of this job; nothing when it is.
  std::optional<Answer> turned_away(const std::string& rank, const std::vector<std::string>& said);
  Answer hello(Guest& guest, char verb, const std::string& rank, std::string value);
  Answer join(Guest& guest, int rank);
  Answer fail(Guest& guest, int rank, const std::string& reason);

  Launch launch_;
  std::map<std::string, std::string> texts_;
  std::vector<bool> joined_;
  std::string loss_;
};

}  // namespace plimsoll::collectives
