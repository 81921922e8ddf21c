// What other tools call the settings of a run file (transformers, Megatron, nanoGPT, Lightning, accelerate). Such a name is not
// accepted, since their units and defaults differ, but whoever brings one is told where to put its value.
#pragma once

#include <span>
#include <string_view>

namespace plimsoll::config {

struct OtherName {
  std::string_view name;
  std::string_view key;          // of the field
  std::string_view remark = {};  // where the value is not the same: "in steps"
};

std::span<const OtherName> other_names();
const OtherName* find_other_name(std::string_view name);  // nullptr: nobody calls a setting so

// What other tools write for a value of a setting; empty: nobody does.
std::string_view find_other_value(std::string_view key, std::string_view value);

}  // namespace plimsoll::config
