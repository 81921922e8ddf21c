// Messages between threads: one box for each receiving member. A message is a copy, so a sender never waits; the copies' memory is
// used again, so that a steady exchange allocates nothing.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "collectives/group.h"
#include "collectives/local/wait.h"

namespace plimsoll::collectives::local {

class Mailbox {
 public:
  void put(int from, int tag, Input data);
  // The first message with this sender and tag, copied to `data`; its length, which may be another, is returned. `look` is called
  // now and then while there is none, and throws when there will be none.
  std::size_t take(int from, int tag, Output data, const std::function<void()>& look);

 private:
  struct Message {
    int from = 0;
    int tag = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<std::byte> spare(std::size_t bytes);  // with the mutex held
  bool find(int from, int tag, Message& message);   // with the mutex held

  std::mutex mutex_;
  std::deque<Message> messages_;
  std::vector<std::vector<std::byte>> spares_;
  Word changes_{0};
};

}  // namespace plimsoll::collectives::local
