#include "collectives/rendezvous.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "collectives/rendezvous_server.h"

namespace plimsoll::collectives {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBeat{200};
constexpr std::chrono::milliseconds kNap{5};
constexpr std::size_t kLongestReason = 1500;  // it goes into the frame of somebody who has yet to be believed

}  // namespace

Rendezvous::Rendezvous(const Launch& launch, const Options& options, Socket listener) : launch_(launch), limits_(options.limits) {
  if (launch_.rank == 0) server_ = std::make_unique<RendezvousServer>(launch, options, std::move(listener));
  auto socket = Socket::connect(launch_.address, launch_.port, options.join);
  if (!socket) {
    base::fail(base::ErrorKind::peer_lost, "rank {}: rank 0 did not answer at {} port {} within {:g} s (MASTER_ADDR, MASTER_PORT)",
               launch_.rank, launch_.address, launch_.port, options.join);
  }
  socket_ = std::move(*socket);
  socket_.set_read_limit(limits_.heartbeat);
  join();
  heart_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

Rendezvous::~Rendezvous() {
  if (heart_.joinable()) {
    heart_.request_stop();
    heart_.join();
  }
  ask('x', "", "");
}

Rendezvous::Reply Rendezvous::ask(char verb, const std::string& key, const std::string& value) {
  const std::string frame = frame_of(verb, key, value);
  const std::lock_guard lock(mutex_);
  std::string reply;
  if (!socket_.send_frame(frame) || !socket_.receive_frame(reply) || reply.empty()) {
    note_loss(fmt::format("rank 0 is gone, or silent for {:g} s: its store at {} port {} does not answer", limits_.heartbeat,
                          launch_.address, launch_.port));
    return {};
  }
  return {reply.front(), reply.substr(1)};
}

void Rendezvous::join() {
  const Reply hello = ask('h', std::to_string(launch_.rank), greeting(launch_));
  if (hello.sign == '!') base::fail(base::ErrorKind::peer_lost, "{}", hello.text);
  if (hello.sign == '-' && !loss()) base::bad_input("rank {} was turned away by rank 0: {}", launch_.rank, hello.text);
  while (!get(kAllJoined)) {
    if (const Reply news = ask('b', "", ""); news.sign == '+' && !news.text.empty()) note_loss(news.text);
    if (const auto lost = loss()) {
      ask('x', "", "");
      base::fail(base::ErrorKind::peer_lost, "rank {} waited for the others: {}", launch_.rank, *lost);
    }
    std::this_thread::sleep_for(kNap);
  }
}

void Rendezvous::beat(const std::stop_token& stop) {
  while (!stop.stop_requested() && !loss()) {
    if (const Reply news = ask('b', "", ""); news.sign == '+' && !news.text.empty()) note_loss(news.text);
    for (auto slept = std::chrono::milliseconds(0); slept < kBeat && !stop.stop_requested(); slept += kNap)
      std::this_thread::sleep_for(kNap);
  }
}

void Rendezvous::set(const std::string& key, const std::string& value) { ask('s', key, value); }

std::optional<std::string> Rendezvous::get(const std::string& key) {
  const Reply reply = ask('g', key, "");
  return reply.sign == '+' ? std::optional(reply.text) : std::nullopt;
}

std::string Rendezvous::wait(const std::string& key) {
  const auto start = Clock::now();
  for (;;) {
    if (auto value = get(key)) return *value;
    std::optional<std::string> why = loss();
    if (!why && std::chrono::duration<double>(Clock::now() - start).count() > limits_.progress) {
      why = fmt::format("nobody did so within the limit of {:g} s", limits_.progress);
    }
    if (why) base::fail(base::ErrorKind::peer_lost, "rank {} waited for another to set \"{}\": {}", launch_.rank, key, *why);
    std::this_thread::sleep_for(kNap);
  }
}

void Rendezvous::report_loss(const std::string& reason) { ask('l', reason, ""); }

void Rendezvous::note_loss(const std::string& text) {
  const std::lock_guard lock(loss_mutex_);
  if (!loss_) loss_ = text;
}

std::optional<std::string> Rendezvous::loss() {
  const std::lock_guard lock(loss_mutex_);
  return loss_;
}

void tell_of_early_loss(const Launch& launch, const std::string& reason, double seconds) {
  if (launch.rank == 0) {
    const RendezvousServer server(launch, {}, {}, reason);
    const auto start = Clock::now();
    while (server.left() + 1 < launch.ranks && std::chrono::duration<double>(Clock::now() - start).count() < seconds)
      std::this_thread::sleep_for(kNap);
    return;
  }
  const auto socket = Socket::connect(launch.address, launch.port, seconds);
  if (!socket) return;
  socket->set_read_limit(seconds);
  std::string told = greeting(launch);
  append_text(told, reason.substr(0, kLongestReason));
  std::string reply;
  if (socket->send_frame(frame_of('f', std::to_string(launch.rank), told))) socket->receive_frame(reply);
}

}  // namespace plimsoll::collectives
