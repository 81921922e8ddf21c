#include "collectives/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::collectives {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, int port, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    base::bad_input("MASTER_ADDR \"{}\" is not known as a machine: {}", address, gai_strerror(error));
  }
  return {found, &freeaddrinfo};
}

bool write_all(int file, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = send(file, data, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

bool read_all(int file, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t done = recv(file, data, bytes, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

void send_at_once(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

timeval time_of(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  return {.tv_sec = whole, .tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
}

// An address that nobody answers at takes the system minutes to give up.
bool connects_within(int file, const addrinfo& to, double seconds) {
  const timeval limit = time_of(std::max(0.02, seconds));
  setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(file, to.ai_addr, to.ai_addrlen) != 0) return false;
  const timeval none{};
  setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
  return true;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Socket::~Socket() {
  if (file_ >= 0) close(file_);
}

Socket Socket::listen(const std::string& address, int port) {
  const Addresses found = resolve(address, port, true);
  Socket listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(listener.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener.file(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(listener.file(), SOMAXCONN) == 0) return listener;
  if (errno == EADDRINUSE) base::bad_input("port {} on {} is in use; set MASTER_PORT to a free one on all ranks", port, address);
  if (errno == EADDRNOTAVAIL) base::bad_input("MASTER_ADDR {} is not an address of the machine on which rank 0 runs", address);
  base::bad_input("rank 0 cannot listen on {} port {}: {}", address, port, std::strerror(errno));
}

std::optional<Socket> Socket::connect(const std::string& address, int port, double seconds) {
  const Addresses found = resolve(address, port, false);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto left = [&] { return std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count(); };
  do {
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      Socket one(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!connects_within(one.file(), *each, left())) continue;
      send_at_once(one.file());
      return one;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (left() > 0.0);
  return std::nullopt;
}

std::optional<Socket> Socket::accept() const {
  Socket one(accept4(file_, nullptr, nullptr, SOCK_CLOEXEC));
  if (one.file() < 0) return std::nullopt;
  send_at_once(one.file());
  const timeval a_moment = time_of(1.0);  // whoever does not read its answers must not hold up the others
  setsockopt(one.file(), SOL_SOCKET, SO_SNDTIMEO, &a_moment, sizeof a_moment);
  return one;
}

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(file_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string Socket::other_side() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(file_, any, &length) != 0 ||
      getnameinfo(any, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "somebody who is gone";
  return fmt::format("{} port {}", host, port);
}

void Socket::set_read_limit(double seconds) const {
  const timeval limit = time_of(seconds);
  setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

bool Socket::send_frame(const std::string& payload) const {
  const std::string wire = on_the_wire(payload);
  return write_all(file_, wire.data(), wire.size());
}

bool Socket::receive_frame(std::string& payload) const {
  std::uint32_t length = 0;
  if (!read_all(file_, reinterpret_cast<char*>(&length), sizeof length) || length > kLongestFrame) return false;
  payload.resize(length);
  return read_all(file_, payload.data(), length);
}

std::optional<std::string> Socket::receive_some() const {
  std::string bytes(std::size_t{64} << 10, '\0');
  const ssize_t done = recv(file_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (done < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return "";
  if (done <= 0) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(done));
  return bytes;
}

}  // namespace plimsoll::collectives
