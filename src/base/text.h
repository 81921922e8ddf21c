// Small helpers for messages: which known name a mistyped one was meant to be.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll::base {

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other (Damerau-Levenshtein,
// restricted form: no part is edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `name` most likely stands for, or an empty text when none is near: at most a third of the longer
// one's letters (and at least one) may differ. Case does not count. Of several as near, the one whose number is nearest.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace plimsoll::base
