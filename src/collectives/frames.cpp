#include "collectives/frames.h"

#include <cstring>

#include "base/error.h"

namespace plimsoll::collectives {

void append_text(std::string& frame, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  frame.append(reinterpret_cast<const char*>(&length), sizeof length);
  frame += text;
}

std::optional<std::string> take_text(std::string& frame) {
  std::uint32_t length = 0;
  if (frame.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, frame.data(), sizeof length);
  if (length > frame.size() - sizeof length) return std::nullopt;
  std::string text = frame.substr(sizeof length, length);
  frame.erase(0, sizeof length + length);
  return text;
}

std::string on_the_wire(const std::string& frame) {
  PLIMSOLL_CHECK(frame.size() <= kLongestFrame, "a frame of {} bytes", frame.size());
  std::string wire;
  append_text(wire, frame);
  return wire;
}

void FrameReader::add(std::string_view bytes) {
  if (!broken_) pending_ += bytes;
}

std::optional<std::string> FrameReader::next() {
  std::uint32_t length = 0;
  if (pending_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, pending_.data(), sizeof length);
  if (length > longest_) {
    broken_ = true;
    pending_.clear();
    return std::nullopt;
  }
  return take_text(pending_);
}

}  // namespace plimsoll::collectives
