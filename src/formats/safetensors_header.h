// The JSON header of a safetensors file, read one tensor at a time.
//
// A header may have 100 MB, and as a tree it would take many times that in memory. So the outer object is only split at
// its commas; each member is then parsed, strictly, as a small text of its own and dropped again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"

namespace plimsoll::formats {

struct HeaderEntry {
  TensorSpec spec;
  std::int64_t begin = 0;  // of the data, as the file says
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // as written; names are unique, ranges unchecked
  std::map<std::string, std::string> metadata;
};

// `file` is what messages call the file.
SafetensorsHeader read_safetensors_header(std::string_view text, const std::string& file);

}  // namespace plimsoll::formats
