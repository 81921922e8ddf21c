// Token files as people have them, recognised by content:
//
//   llm.c      1,024 bytes of header (256 x i32: magic, version, count), then u16 (GPT-2) or u32 (Llama-3) ids
//   nanoGPT    no header at all: u16 ids, or u32 when the run file says "token_bytes": 4
//   Megatron   NAME.bin with ids and NAME.idx with lengths, offsets and documents (megatron_tokens.h)
//
// Files are mapped, not copied. No number from a file is used before it was checked against the file's real size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/token_source.h"
#include "io/file_system.h"

namespace plimsoll::formats {

enum class TokenFormat { llmc_gpt2, llmc_llama3, headerless, megatron };

std::string_view name_of(TokenFormat format);

inline constexpr std::int64_t kLlmcHeaderBytes = 1024;

struct TokenFileOptions {
  std::int64_t token_bytes = 2;  // of headerless files: 2 or 4
  bool certain = false;          // somebody said so; else a file that looks like 4 is refused as one of 2
};

// A file without a header does not say how wide its ids are. Of four-byte ids below 2^18 every second half is nearly empty.
bool looks_like_four_bytes(const TokenSource& read_as_two);

// nullopt when nothing about the file says tokens: then it is text. A headerless file is one whose name ends in .bin.
// Files of llm.c that hold something else (weights, evaluation sets) are refused by name.
std::optional<TokenFormat> recognise_token_file(io::FileSystem& file_system, const io::Path& path);

// Opens a file of a recognised format; for Megatron `path` may name the .bin, the .idx or what they share.
std::unique_ptr<TokenSource> open_token_file(io::FileSystem& file_system, const io::Path& path, const TokenFileOptions& options = {});

// The file that lies beside token files while they get their names (token_writer.h): NAME.unfinished for NAME.bin, NAME.idx and
// NAME_000000.bin. While it is there, some may be old, new or missing, and open_token_file refuses them all.
io::Path unfinished_mark(const io::Path& path);

using TextOpener = std::function<std::unique_ptr<TokenSource>(io::FileSystem&, const io::Path&)>;

// The data files that a name stands for: the file of that name, all files in the folder of that name and in those under it, or what matches
// a pattern such as "shards/train_*.bin". Always in the same order: by path, byte by byte. Files whose name begins with a dot are nobody's
// data; others in a folder must be text or tokens. Bad input when there is none.
std::vector<io::Path> find_data(io::FileSystem& file_system, const std::string& name);

// Files, folders and patterns such as "shards/train_*.bin", in the order given (each as find_data sorts it), as one source. Files
// that are not token files go to `open_text`, the tokenizer's way of reading them.
std::unique_ptr<TokenSource> open_tokens(io::FileSystem& file_system, const std::vector<std::string>& patterns,
                                         const TokenFileOptions& options, const TextOpener& open_text);

}  // namespace plimsoll::formats
