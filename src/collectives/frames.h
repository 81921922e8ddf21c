// How the rendezvous' bytes are parted: a connection's into frames, a frame's into texts. Lengths that a stranger sends are bounded before
// anything is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll::collectives {

inline constexpr std::uint32_t kLongestFrame = 1 << 20;

// Texts one after another in a frame, each with its length.
void append_text(std::string& frame, const std::string& text);
// The next text, which is cut off; nothing when the frame is too short.
std::optional<std::string> take_text(std::string& frame);

// A frame as it goes over a connection: its length in 4 bytes, then so many.
std::string on_the_wire(const std::string& frame);

// Parts what a connection has sent, in whatever pieces it comes. A length above the longest allowed breaks it: nothing more is taken.
class FrameReader {
 public:
  explicit FrameReader(std::uint32_t longest) : longest_(longest) {}

  void allow(std::uint32_t longest) { longest_ = longest; }
  void add(std::string_view bytes);
  // The next whole frame; nothing while there is none.
  std::optional<std::string> next();
  bool broken() const { return broken_; }

 private:
  std::uint32_t longest_;
  std::string pending_;
  bool broken_ = false;
};

}  // namespace plimsoll::collectives
