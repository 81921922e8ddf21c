// Megatron's indexed datasets: NAME.bin holds the ids, NAME.idx says where.
//
// The index is: 9 bytes "MMIDIDX\0\0", u64 version 1, u8 type of the ids, u64 sequences S, u64 document marks D, then
// i32 length[S], i64 byte offset[S], i64 mark[D] (the first sequence of each document, and S at the end), and perhaps
// i8 mode[S]. Sequences are read in the order of the index, one behind the other.
#pragma once

#include <memory>
#include <optional>

#include "formats/token_source.h"
#include "io/file_system.h"

namespace plimsoll::formats {

struct MegatronPaths {
  io::Path ids;    // NAME.bin
  io::Path index;  // NAME.idx
};

// `path` names the .bin, the .idx or what they share; nullopt unless there is an index with the right first bytes.
std::optional<MegatronPaths> find_megatron(io::FileSystem& file_system, const io::Path& path);

std::unique_ptr<TokenSource> open_megatron(io::FileSystem& file_system, const MegatronPaths& paths);

}  // namespace plimsoll::formats
