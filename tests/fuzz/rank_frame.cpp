// What a stranger may send to the port where ranks meet: texts with their lengths. Whatever is taken out was in the frame, and putting it
// together again gives the frame's beginning.
#include <cstdlib>
#include <string>

#include "collectives/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll::collectives;
  const std::string frame(reinterpret_cast<const char*>(data), size);
  std::string rest = frame, again;
  while (const auto text = take_text(rest)) append_text(again, *text);
  if (again + rest != frame) std::abort();
  return 0;
}
