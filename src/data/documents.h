// Where documents meet inside a sample, and what that does to positions, segments and targets.
//
// A document ends with its end token (nanoGPT and Megatron append one), or where the source's own index says so.
// Masked, each document of a row has its own segment number and positions from 0, so that attention can be kept
// within it; the target that would be the next document's first token is ignored unless it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "formats/token_source.h"

namespace plimsoll::data {

struct DocumentOptions {
  std::optional<std::int32_t> end_token = {};  // without one the source must know its documents
  bool keep_crossing_targets = false;
};

// True (1) at each index of `ids`, read from `begin` on, where a document begins; index 0 never counts.
void find_document_starts(const formats::TokenSource& source, std::int64_t begin, std::span<const std::int32_t> ids,
                          const DocumentOptions& options, std::span<std::uint8_t> starts);

}  // namespace plimsoll::data
