// --set a.b=c: changes to the document before it is read, so that an override passes the same checks as the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model.h"

namespace plimsoll::config {

// How a value given by --set is called in messages and by `explain`.
inline constexpr std::string_view kSetPrefix = "--set ";

void apply_overrides(base::Json& document, const std::vector<std::string>& overrides, const std::vector<model::Family>& more_families = {});

// Ends a message about a key that does not exist: the nearest one that does, and the list of those beside it.
std::string known_keys_hint(std::string_view group, std::string_view key);

}  // namespace plimsoll::config
