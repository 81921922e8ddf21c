// What a stranger may send to the port where ranks meet: lengths, texts, greetings. The bytes are dealt out to connections in pieces; rank
// 0's book answers as the server does. A stranger without the token changes nothing, and what is parted can be put together again.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "collectives/frames.h"
#include "collectives/rendezvous_book.h"

namespace {

using namespace plimsoll::collectives;

void require(bool holds) {
  if (!holds) std::abort();
}

void part_texts(const std::string& frame) {
  std::string rest = frame, again;
  while (const auto text = take_text(rest)) append_text(again, *text);
  require(again + rest == frame);
}

struct Connection {
  FrameReader frames{kLongestHello};
  RendezvousBook::Guest guest{};
  bool open = true;
};

void hear(RendezvousBook& book, Connection& from, std::string_view bytes) {
  if (!from.open) return;
  from.frames.add(bytes);
  while (const auto frame = from.frames.next()) {
    require(frame->size() <= (from.guest.rank < 0 ? kLongestHello : kLongestFrame));
    const auto reply = book.answer(from.guest, *frame);
    from.open = reply && from.guest.rank >= 0;
    if (!from.open) return;
    from.frames.allow(kLongestFrame);
  }
  from.open = !from.frames.broken();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  part_texts(std::string(input));
  const Launch launch{.rank = 0, .ranks = 3, .token = "a secret", .build = "1"};
  for (const bool knows : {false, true}) {
    // Who does not know the token is a stranger whatever it sends.
    Launch job = launch;
    if (!knows) job.token = "a secret that nobody can have sent: " + std::string(input.size() + 1, 'x');
    RendezvousBook book(job);
    std::array<Connection, 3> connections;
    for (std::string_view rest = input; !rest.empty();) {
      const auto to = static_cast<unsigned char>(rest.front());
      const std::string_view piece = rest.substr(1, 1 + to / connections.size());
      hear(book, connections[to % connections.size()], piece);
      rest.remove_prefix(1 + piece.size());
    }
    require(knows || (book.loss().empty() && book.missing().size() == 3));
    require(book.complete() == book.missing().empty());
  }
  return 0;
}
