#include "collectives/local/mailbox.h"

#include <algorithm>
#include <cstring>

namespace plimsoll::collectives::local {

std::vector<std::byte> Mailbox::spare(std::size_t bytes) {
  const auto fits = [&](const auto& spare) { return spare.capacity() >= bytes; };
  auto found = std::find_if(spares_.begin(), spares_.end(), fits);
  if (found == spares_.end() && !spares_.empty()) found = spares_.begin();
  if (found == spares_.end()) return {};
  std::vector<std::byte> memory = std::move(*found);
  spares_.erase(found);
  return memory;
}

void Mailbox::put(int from, int tag, Input data) {
  Message message{from, tag, {}};
  {
    const std::lock_guard lock(mutex_);
    message.bytes = spare(data.size());
  }
  message.bytes.assign(data.begin(), data.end());
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    changes_.fetch_add(1, std::memory_order_release);
  }
  wake_all(changes_);
}

bool Mailbox::find(int from, int tag, Message& message) {
  const auto found = std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) { return m.from == from && m.tag == tag; });
  if (found == messages_.end()) return false;
  message = std::move(*found);
  messages_.erase(found);
  return true;
}

std::size_t Mailbox::take(int from, int tag, Output data, const std::function<void()>& look) {
  Message message;
  for (;;) {
    std::uint32_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (find(from, tag, message)) break;
      seen = changes_.load(std::memory_order_relaxed);
    }
    look();
    wait_while(changes_, seen, kLook);
  }
  const std::size_t bytes = message.bytes.size();
  std::copy_n(message.bytes.begin(), std::min(bytes, data.size()), data.begin());
  const std::lock_guard lock(mutex_);
  spares_.push_back(std::move(message.bytes));
  return bytes;
}

}  // namespace plimsoll::collectives::local
