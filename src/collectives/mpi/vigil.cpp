#include "collectives/mpi/vigil.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::collectives::mpi {

namespace {

constexpr double kToReach = 1.0;  // seconds for each address of the first rank's machine

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// A secret of this job, told by MPI: whoever else finds the port is turned away.
std::string fresh_token() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) token += fmt::format("{:08x}", random());
  return token;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool serves = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0;
    if (!serves || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text.data(), text.size());
    addresses.emplace_back(text.data());
  }
  freeifaddrs(all);
  return addresses;
}

// What the first rank tells: its machine, the token, the port, and the machine's addresses. No machine: it cannot listen.
std::string invitation(Socket& listener) {
  std::string text;
  try {
    listener = Socket::listen("0.0.0.0", 0);
  } catch (const base::Error&) {
    return text;
  }
  for (const std::string& part : {host_name(), fresh_token(), std::to_string(listener.port())}) append_text(text, part);
  for (const std::string& address : own_addresses()) append_text(text, address);
  return text;
}

std::string told_by_the_first(MPI_Comm everybody, std::string text) {
  std::array<char, 4096> buffer{};
  auto length = static_cast<int>(std::min(text.size(), buffer.size()));
  std::memcpy(buffer.data(), text.data(), static_cast<std::size_t>(length));
  MPI_Bcast(&length, 1, MPI_INT, 0, everybody);
  MPI_Bcast(buffer.data(), length, MPI_CHAR, 0, everybody);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

// The address at which this rank reaches the first one; empty where there is none.
std::string reached(std::vector<std::string> addresses, bool same_machine, int port) {
  if (same_machine) addresses = {"127.0.0.1"};
  for (const std::string& address : addresses)
    if (Socket::connect(address, port, kToReach)) return address;
  return "";
}

}  // namespace

std::unique_ptr<Rendezvous> keep_vigil(MPI_Comm everybody, const Limits& limits) {
  Launch launch;
  MPI_Comm_rank(everybody, &launch.rank);
  MPI_Comm_size(everybody, &launch.ranks);
  if (launch.ranks == 1) return nullptr;
  Socket listener;
  std::string text = told_by_the_first(everybody, launch.rank == 0 ? invitation(listener) : "");
  std::vector<std::string> parts;
  while (const auto part = take_text(text)) parts.push_back(*part);
  if (parts.size() >= 3) {
    launch.token = parts[1];
    launch.port = std::stoi(parts[2]);
    launch.address = reached({parts.begin() + 3, parts.end()}, parts[0] == host_name(), launch.port);
  }
  int reaches = parts.size() >= 3 && !launch.address.empty() ? 1 : 0;
  int all_reach = 0;
  MPI_Allreduce(&reaches, &all_reach, 1, MPI_INT, MPI_MIN, everybody);
  if (all_reach == 0) return nullptr;
  return std::make_unique<Rendezvous>(launch, Rendezvous::Options{.limits = limits}, std::move(listener));
}

}  // namespace plimsoll::collectives::mpi
