// Text files as tokens: what training on plain text reads.
#pragma once

#include <cstdint>
#include <memory>

#include "formats/token_source.h"
#include "formats/tokenizer/tokenizer.h"
#include "io/file_system.h"

namespace plimsoll::data {

// The tokens of a text file (or of JSON lines: "text" of each, every document ended by the tokenizer's end token where it has one),
// encoded into memory. Byte tokens are mapped instead. Text whose tokens would take more than `most_bytes` is refused with
// the advice to make shards first.
std::unique_ptr<formats::TokenSource> open_text(io::FileSystem& file_system, const io::Path& path,
                                                const std::shared_ptr<const formats::tokenizer::Tokenizer>& tokenizer,
                                                std::int64_t most_bytes = std::int64_t{4} << 30);

// About how many bytes the tokens of such a file take in memory, by the beginning of its text; 0 where the file is mapped.
std::int64_t expected_token_bytes(io::FileSystem& file_system, const io::Path& path, const formats::tokenizer::Tokenizer& tokenizer);

}  // namespace plimsoll::data
