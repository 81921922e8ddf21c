// TCP as the rendezvous needs it: listening, connecting with a deadline, and whole frames.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "collectives/frames.h"

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
  // Nothing when nobody waits to be accepted.
  std::optional<Socket> accept() const;

  int port() const;                // of a listener: its own
  std::string other_side() const;  // "10.0.0.7 port 51234"

  void set_read_limit(double seconds) const;
  // False when the other side is gone or, reading, silent for longer than the limit.
  bool send_frame(const std::string& payload) const;
  bool receive_frame(std::string& payload) const;
  // What has come, without waiting; nothing when the other side is gone.
  std::optional<std::string> receive_some() const;

 private:
  int file_ = -1;
};

}  // namespace plimsoll::collectives
