#include "collectives/rendezvous_book.h"

#include <algorithm>

#include <fmt/format.h>

#include "collectives/frames.h"

namespace plimsoll::collectives {

namespace {

constexpr const char* kProtocol = "plimsoll ranks 2";

}  // namespace

std::string greeting(const Launch& launch) {
  std::string text;
  for (const std::string& part : {std::string(kProtocol), launch.token, std::to_string(launch.ranks), launch.build})
    append_text(text, part);
  return text;
}

std::string frame_of(char verb, const std::string& key, const std::string& value) {
  std::string frame;
  append_text(frame, std::string(1, verb));
  append_text(frame, key);
  append_text(frame, value);
  return frame;
}

std::optional<RendezvousBook::Answer> RendezvousBook::answer(Guest& guest, std::string frame) {
  const std::optional<std::string> verb = take_text(frame);
  const std::optional<std::string> key = verb ? take_text(frame) : std::nullopt;
  const std::optional<std::string> value = key ? take_text(frame) : std::nullopt;
  if (!value || !frame.empty() || verb->size() != 1) return std::nullopt;
  if (verb->front() == 'h' || verb->front() == 'f') return hello(guest, verb->front(), *key, *value);
  if (guest.rank < 0) return Answer{'-', "say hello first"};
  switch (verb->front()) {
    case 's': texts_[*key] = *value; return Answer{};
    case 'g': {
      const auto found = texts_.find(*key);
      return found == texts_.end() ? Answer{'-', ""} : Answer{'+', found->second};
    }
    case 'b': return Answer{'+', loss_};
    case 'l': lose(guest.rank, *key); return Answer{};
    case 'x': guest.left = true; return Answer{};
    default: return Answer{'-', "unknown verb"};
  }
}

// The token comes first: who does not have it learns nothing of the job, and changes nothing in it.
std::optional<RendezvousBook::Answer> RendezvousBook::turned_away(const std::string& rank, const std::vector<std::string>& said) {
  if (said.size() < 2 || said[1] != launch_.token) return Answer{'-', "this rank belongs to another job: its token is not that of rank 0"};
  const std::string name = fmt::format("rank {}", rank);
  if (said[0] != kProtocol || said.size() < 4 || said[3] != launch_.build) {
    const std::string theirs = said.size() < 4 ? said[0] : said[3];
    lose(fmt::format("{} is of another build: {}, and rank 0 of {}; start the same program on all machines", name, theirs, launch_.build));
    return Answer{'!', loss_};
  }
  if (said[2] == std::to_string(launch_.ranks)) return std::nullopt;
  lose(fmt::format("{} was started with another number of ranks: {}, and rank 0 with {}", name, said[2], launch_.ranks));
  return Answer{'-', fmt::format("WORLD_SIZE is {} here and {} on rank 0", said[2], launch_.ranks)};
}

RendezvousBook::Answer RendezvousBook::hello(Guest& guest, char verb, const std::string& rank, std::string value) {
  if (guest.rank >= 0) return {'-', fmt::format("rank {} has said hello", guest.rank)};
  std::vector<std::string> said;
  while (const auto part = take_text(value)) said.push_back(*part);
  if (const auto answer = turned_away(rank, said)) return *answer;
  for (int number = 0; number < launch_.ranks; ++number) {
    if (rank != std::to_string(number)) continue;
    return verb == 'f' ? fail(guest, number, said.size() > 4 ? said[4] : "failed") : join(guest, number);
  }
  return {'-', fmt::format("rank {} of {}", rank, launch_.ranks)};
}

RendezvousBook::Answer RendezvousBook::fail(Guest& guest, int rank, const std::string& reason) {
  guest = {.rank = rank, .left = true};
  lose(rank, reason);
  return {};
}

RendezvousBook::Answer RendezvousBook::join(Guest& guest, int rank) {
  if (joined_[static_cast<std::size_t>(rank)]) return {'-', fmt::format("RANK {} is taken: two processes were started as it", rank)};
  joined_[static_cast<std::size_t>(rank)] = true;
  guest.rank = rank;
  if (missing().empty()) texts_[kAllJoined] = "";
  return {};
}

std::vector<int> RendezvousBook::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < launch_.ranks; ++rank)
    if (!joined_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

void RendezvousBook::lose(int rank, const std::string& reason) { lose(fmt::format("rank {} {}", rank, reason)); }

void RendezvousBook::lose(const std::string& text) {
  if (loss_.empty()) loss_ = text;
}

}  // namespace plimsoll::collectives
