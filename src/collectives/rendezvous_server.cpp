#include "collectives/rendezvous_server.h"

#include <poll.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plimsoll::collectives {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

}  // namespace

RendezvousServer::RendezvousServer(const Launch& launch, const Rendezvous::Options& options)
    : launch_(launch),
      options_(options),
      listener_(Socket::listen(launch.address, launch.port)),
      joined_(static_cast<std::size_t>(launch.ranks)),
      start_(Clock::now()),
      looked_(start_),
      thread_([this](const std::stop_token& stop) { serve(stop); }) {}

// Others may still ask for what they need to end: rank 0 leaves last, or after a moment.
RendezvousServer::~RendezvousServer() {
  thread_.request_stop();
  thread_.join();
}

void RendezvousServer::serve(const std::stop_token& stop) {
  constexpr double kLinger = 2.0;
  while (!stop.stop_requested()) poll_once();
  const auto asked = Clock::now();
  const auto gone = [](const Peer& peer) { return peer.left; };
  while (!std::all_of(peers_.begin(), peers_.end(), gone) && seconds_since(asked) < kLinger) poll_once();
}

void RendezvousServer::poll_once() {
  std::vector<pollfd> files{{.fd = listener_.file(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_) files.push_back({.fd = peer.socket.file(), .events = POLLIN, .revents = 0});
  if (poll(files.data(), files.size(), 50) > 0) {
    for (std::size_t i = files.size() - 1; i > 0; --i) {
      if (files[i].revents != 0 && !hear(peers_[i - 1])) peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
    if (files[0].revents != 0) {
      if (auto socket = listener_.accept()) {
        socket->set_read_limit(1.0);  // a stranger that sends half a frame must not hold up the others
        peers_.push_back({.socket = std::move(*socket), .rank = -1, .heard = Clock::now()});
      }
    }
  }
  look_for_losses();
}

bool RendezvousServer::hear(Peer& peer) {
  std::string frame;
  const bool whole = peer.socket.receive_frame(frame);
  const std::optional<std::string> verb = whole ? take_text(frame) : std::nullopt;
  const std::optional<std::string> key = verb ? take_text(frame) : std::nullopt;
  const std::optional<std::string> value = key ? take_text(frame) : std::nullopt;
  if (!value || verb->size() != 1) {
    if (peer.rank >= 0 && !peer.left) lose(peer.rank, "is gone: its connection was closed");
    return false;
  }
  peer.heard = Clock::now();
  const Answer reply = answer(peer, verb->front(), *key, *value);
  std::string text(reply.good ? "+" : "-");
  text += reply.text;
  return peer.socket.send_frame(text);
}

RendezvousServer::Answer RendezvousServer::answer(Peer& peer, char verb, const std::string& key, const std::string& value) {
  if (verb == 'h') return hello(peer, key, value);
  if (peer.rank < 0) return {false, "say hello first"};
  switch (verb) {
    case 's': texts_[key] = value; return {};
    case 'g': {
      const auto found = texts_.find(key);
      return found == texts_.end() ? Answer{false, ""} : Answer{true, found->second};
    }
    case 'b': return {true, loss_};
    case 'l': lose(peer.rank, key); return {};
    case 'x': peer.left = true; return {};
    default: return {false, "unknown verb"};
  }
}

RendezvousServer::Answer RendezvousServer::hello(Peer& peer, const std::string& key, const std::string& value) {
  const std::string expected = fmt::format("{} {}", launch_.ranks, launch_.token);
  if (value.substr(0, value.find(' ')) != expected.substr(0, expected.find(' '))) {
    return {false, fmt::format("WORLD_SIZE is {} here and {} on rank 0", value.substr(0, value.find(' ')), launch_.ranks)};
  }
  if (value != expected) return {false, "this rank belongs to another job: its token is not that of rank 0"};
  for (int rank = 0; rank < launch_.ranks; ++rank) {
    if (key != std::to_string(rank)) continue;
    if (joined_[static_cast<std::size_t>(rank)]) return {false, fmt::format("RANK {} is taken: two processes were started as it", rank)};
    joined_[static_cast<std::size_t>(rank)] = true;
    peer.rank = rank;
    if (std::find(joined_.begin(), joined_.end(), false) == joined_.end()) texts_[kAllJoined] = "";
    return {};
  }
  return {false, fmt::format("rank {} of {}", key, launch_.ranks)};
}

void RendezvousServer::look_for_losses() {
  const bool stood_still = seconds_since(looked_) > 1.0;  // then others' silence proves nothing
  looked_ = Clock::now();
  if (texts_.find(kAllJoined) == texts_.end()) {
    if (loss_.empty() && seconds_since(start_) > options_.join) loss_ = missing();
    return;
  }
  for (Peer& peer : peers_) {
    if (stood_still) peer.heard = looked_;
    if (peer.rank < 0 || peer.left || seconds_since(peer.heard) <= options_.limits.heartbeat) continue;
    lose(peer.rank, fmt::format("gave no sign of life for {:g} s", options_.limits.heartbeat));
  }
}

void RendezvousServer::lose(int rank, const std::string& reason) {
  if (loss_.empty()) loss_ = fmt::format("rank {} {}", rank, reason);
}

std::string RendezvousServer::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < launch_.ranks; ++rank) {
    if (!joined_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return fmt::format("rank{} {} of {} did not come to {} port {} within {:g} s", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                     launch_.ranks, launch_.address, launch_.port, options_.join);
}

}  // namespace plimsoll::collectives
