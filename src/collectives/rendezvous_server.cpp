#include "collectives/rendezvous_server.h"

#include <poll.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plimsoll::collectives {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kToSayHello = 5.0;     // seconds that a connection may take
constexpr std::size_t kStrangers = 64;  // connections beside the ranks' own
constexpr int kToldRefusals = 16;

double seconds_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

}  // namespace

RendezvousServer::RendezvousServer(const Launch& launch, const Rendezvous::Options& options, Socket listener, const std::string& lost)
    : launch_(launch),
      options_(options),
      listener_(listener.file() >= 0 ? std::move(listener) : Socket::listen(launch.address, launch.port)),
      book_(launch),
      start_(Clock::now()),
      looked_(start_) {
  if (!lost.empty()) book_.lose(launch.rank, lost);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

// Others may still ask for what they need to end: rank 0 leaves last, or after a moment. A lost rank never says farewell, and its loss is
// heard with the next sign of life.
RendezvousServer::~RendezvousServer() {
  thread_.request_stop();
  thread_.join();
}

void RendezvousServer::serve(const std::stop_token& stop) {
  while (!stop.stop_requested()) poll_once();
  const double linger = book_.loss().empty() ? 2.0 : 1.0;
  const auto asked = Clock::now();
  const auto is_gone = [](const Peer& peer) { return peer.guest.left; };
  while (!std::all_of(peers_.begin(), peers_.end(), is_gone) && seconds_since(asked) < linger) poll_once();
}

void RendezvousServer::poll_once() {
  std::vector<pollfd> files{{.fd = listener_.file(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_) files.push_back({.fd = peer.socket.file(), .events = POLLIN, .revents = 0});
  if (poll(files.data(), files.size(), 50) > 0) {
    for (std::size_t i = files.size() - 1; i > 0; --i) {
      if (files[i].revents != 0 && !hear(peers_[i - 1])) peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
    if (files[0].revents != 0) accept_all();
  }
  turn_away_the_silent();
  look_for_losses();
}

void RendezvousServer::accept_all() {
  while (auto socket = listener_.accept()) {
    Peer peer{.socket = std::move(*socket), .heard = Clock::now(), .came = Clock::now()};
    const auto strangers = std::count_if(peers_.begin(), peers_.end(), [](const Peer& one) { return one.guest.rank < 0; });
    if (static_cast<std::size_t>(strangers) < kStrangers + static_cast<std::size_t>(launch_.ranks)) {
      peers_.push_back(std::move(peer));
    } else {
      refuse(peer, "too many connections have not shown the job's token");
    }
  }
}

bool RendezvousServer::hear(Peer& peer) {
  const auto bytes = peer.socket.receive_some();
  if (bytes && bytes->empty()) return true;  // woken for nothing
  if (bytes) peer.frames.add(*bytes);
  while (const auto frame = peer.frames.next()) {
    if (!answer(peer, *frame)) return gone(peer), false;
  }
  if (peer.frames.broken()) {
    refuse(peer, "it sent a frame longer than is allowed");
    return gone(peer), false;
  }
  if (!bytes && peer.guest.rank < 0) refuse(peer, "it was closed before it had shown the job's token");
  if (!bytes) return gone(peer), false;
  return true;
}

bool RendezvousServer::answer(Peer& peer, const std::string& frame) {
  const bool known = peer.guest.rank >= 0;
  const bool had_left = peer.guest.left;
  const auto reply = book_.answer(peer.guest, frame);
  if (!reply) {
    refuse(peer, "it sent what no rank sends");
    return false;
  }
  peer.heard = Clock::now();
  if (!known && peer.guest.rank < 0) refuse(peer, reply->text);
  if (peer.guest.rank >= 0) peer.frames.allow(kLongestFrame);
  const bool sent = peer.socket.send_frame(std::string(1, reply->sign) + reply->text);
  if (peer.guest.left && !had_left) ++left_;
  return sent && peer.guest.rank >= 0;  // whoever was turned away has heard why
}

void RendezvousServer::gone(const Peer& peer) {
  if (peer.guest.rank >= 0 && !peer.guest.left) book_.lose(peer.guest.rank, "is gone: its connection was closed");
}

void RendezvousServer::refuse(const Peer& peer, const std::string& why) {
  if (!options_.say || ++refused_ > kToldRefusals) return;
  options_.say(fmt::format("a connection from {} to port {} was refused: {}{}", peer.socket.other_side(), launch_.port, why,
                           refused_ == kToldRefusals ? "; further ones are not told of" : ""));
}

void RendezvousServer::turn_away_the_silent() {
  const auto dawdles = [&](const Peer& peer) {
    if (peer.guest.rank >= 0 || seconds_since(peer.came) < kToSayHello) return false;
    refuse(peer, fmt::format("it did not show the job's token within {:g} s", kToSayHello));
    return true;
  };
  peers_.erase(std::remove_if(peers_.begin(), peers_.end(), dawdles), peers_.end());
}

void RendezvousServer::look_for_losses() {
  const bool stood_still = seconds_since(looked_) > 1.0;  // then others' silence proves nothing
  looked_ = Clock::now();
  for (Peer& peer : peers_) {
    if (stood_still) peer.heard = looked_;
    if (peer.guest.rank < 0 || peer.guest.left || seconds_since(peer.heard) <= options_.limits.heartbeat) continue;
    book_.lose(peer.guest.rank, fmt::format("gave no sign of life for {:g} s", options_.limits.heartbeat));
  }
  if (book_.complete() || seconds_since(start_) <= options_.join) return;
  const std::vector<int> ranks = book_.missing();
  book_.lose(fmt::format("rank{} {} of {} did not come to {} port {} within {:g} s", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                         launch_.ranks, launch_.address, launch_.port, options_.join));
}

}  // namespace plimsoll::collectives
