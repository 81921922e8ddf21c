#include "collectives/local/shared_mailbox.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace plimsoll::collectives::local {

void SharedSender::collect() {
  while (collected_ != next_) {
    Lane::Slip& slip = lane_->slips[collected_ % Lane::kSlips];
    if (slip.state.load(std::memory_order_acquire) != Lane::State::taken) return;
    slip.state.store(Lane::State::free, std::memory_order_relaxed);
    if (const Buffer& buffer = under_way_[collected_ % Lane::kSlips]; buffer.bytes != 0) spares_.push_back(buffer);
    ++collected_;
  }
}

SharedSender::Buffer SharedSender::buffer_for(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto fits = [&](const Buffer& spare) { return spare.bytes >= bytes; };
  if (const auto found = std::find_if(spares_.begin(), spares_.end(), fits); found != spares_.end()) {
    const Buffer buffer = *found;
    spares_.erase(found);
    return buffer;
  }
  const std::size_t room = std::bit_ceil(bytes);
  return {memory_->allocate(room), room};
}

void SharedSender::put(int tag, Input data, const std::function<void()>& look) {
  for (;;) {
    look();
    const std::uint32_t seen = lane_->taken.load(std::memory_order_acquire);
    collect();
    if (next_ - collected_ < Lane::kSlips) break;
    wait_while(lane_->taken, seen, kLook);
  }
  const Buffer buffer = buffer_for(data.size());
  if (!data.empty()) std::memcpy(memory_->at(buffer.offset), data.data(), data.size());
  under_way_[next_ % Lane::kSlips] = buffer;
  Lane::Slip& slip = lane_->slips[next_ % Lane::kSlips];
  slip.tag = tag;
  slip.bytes = data.size();
  slip.offset = buffer.offset;
  slip.state.store(Lane::State::under_way, std::memory_order_relaxed);
  ++next_;
  lane_->sent.store(next_, std::memory_order_release);
  wake_all(lane_->sent);
}

std::optional<std::uint32_t> SharedReceiver::find(int tag, std::uint32_t sent) const {
  for (std::uint32_t index = first_; index != sent; ++index) {
    if (!done_[index % Lane::kSlips] && lane_->slips[index % Lane::kSlips].tag == tag) return index;
  }
  return std::nullopt;
}

void SharedReceiver::finish(std::uint32_t index, std::uint32_t sent) {
  // Our own notes move on first: a slip marked taken is the sender's again.
  done_[index % Lane::kSlips] = true;
  for (; first_ != sent && done_[first_ % Lane::kSlips]; ++first_) done_[first_ % Lane::kSlips] = false;
  lane_->slips[index % Lane::kSlips].state.store(Lane::State::taken, std::memory_order_release);
  lane_->taken.fetch_add(1, std::memory_order_release);
  wake_all(lane_->taken);
}

std::size_t SharedReceiver::take(int tag, Output data, const std::function<void()>& look) {
  for (;;) {
    const std::uint32_t sent = lane_->sent.load(std::memory_order_acquire);
    if (const auto index = find(tag, sent)) {
      const Lane::Slip& slip = lane_->slips[*index % Lane::kSlips];
      const std::size_t bytes = slip.bytes;
      if (bytes != 0) std::memcpy(data.data(), memory_->at(slip.offset), std::min(bytes, data.size()));
      finish(*index, sent);
      return bytes;
    }
    look();
    wait_while(lane_->sent, sent, kLook);
  }
}

}  // namespace plimsoll::collectives::local
