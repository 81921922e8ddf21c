// Copies memory that nobody reads soon: around the processor's caches, where its instructions allow. An ordinary store first reads
// the line that it is about to overwrite, so that copying a model's weights would move half as many bytes again.
#pragma once

#include <cstddef>
#include <span>

namespace plimsoll::base {

void stream_copy(std::span<const std::byte> from, std::byte* to);  // the two must not overlap

}  // namespace plimsoll::base
