// JSON: whatever is accepted is written in a form that the strict reader accepts and takes for the same value. What the relaxed form
// accepts is the same in HJSON, which the first byte may choose too.
#include "base/json.h"

#include <cstdlib>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll::base;
  if (size == 0) return 0;
  // The first byte chooses the dialect, so that one corpus holds all.
  const bool hjson = (data[0] & 2) != 0;
  const JsonOptions options{.strict = !hjson && (data[0] & 1) != 0, .hjson = hjson};
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
  const bool same_in_hjson = !hjson && (value.is_object() || value.is_array());
  if (same_in_hjson && !(parse_json(text, "fuzz.hjson", {.hjson = true}) == value)) std::abort();
  return 0;
}
