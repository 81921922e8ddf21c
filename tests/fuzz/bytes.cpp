// Amounts such as "8GiB": whatever parses is an amount that a tier could have, and prints.
#include "base/bytes.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll::base;
  const std::optional<Bytes> amount = parse_bytes({reinterpret_cast<const char*>(data), size});
  if (amount && (amount->count < 0 || to_string(*amount).empty())) std::abort();
  return 0;
}
