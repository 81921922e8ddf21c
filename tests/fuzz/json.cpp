// JSON: whatever is accepted is written in a form that the strict reader accepts and takes for the same value.
#include "base/json.h"

#include <cstdlib>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll::base;
  if (size == 0) return 0;
  // The first byte chooses the dialect, so that one corpus holds both.
  const JsonOptions options{.strict = (data[0] & 1) != 0};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Json value;
  try {
    value = parse_json(text, "fuzz.json", options);
  } catch (const Error&) {
    return 0;
  }
  for (JsonLayout layout : {JsonLayout::compact, JsonLayout::pretty}) {
    if (!(parse_json(write_json(value, layout), "written.json", {.strict = true}) == value)) std::abort();
  }
  return 0;
}
