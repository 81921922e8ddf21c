// TCP as the rendezvous needs it: listening, connecting with a deadline, and whole frames. Lengths that a stranger sends are bounded
// before anything is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace plimsoll::collectives {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int file() const { return file_; }

  // Throws bad_input when the port is in use or the address is not of this machine.
  static Socket listen(const std::string& address, int port);
  // Tries until somebody answers; nothing after `seconds`.
  static std::optional<Socket> connect(const std::string& address, int port, double seconds);
  std::optional<Socket> accept() const;

  void set_read_limit(double seconds) const;
  // False when the other side is gone or, reading, silent for longer than the limit.
  bool send_frame(const std::string& payload) const;
  bool receive_frame(std::string& payload) const;

 private:
  int file_ = -1;
};

inline constexpr std::uint32_t kLongestFrame = 1 << 20;

// Texts one after another in a frame, each with its length.
void append_text(std::string& frame, const std::string& text);
// The next text, which is cut off; nothing when the frame is too short.
std::optional<std::string> take_text(std::string& frame);

}  // namespace plimsoll::collectives
