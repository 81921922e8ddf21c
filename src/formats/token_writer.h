// Token files as they are written: llm.c's, nanoGPT's and Megatron's, in one or several shards.
//
// Ids go to NAME.tmp files as they come, in large blocks; finish() writes headers and indices, syncs, and only then gives all files
// their names. A writer that is dropped before leaves nothing but what was there. Several names cannot be given at once, so a mark
// (unfinished_mark) says so meanwhile: after a crash there are the files of before, all new ones, or the mark.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/token_file.h"
#include "io/file_system.h"

namespace plimsoll::formats {

enum class ShardFormat { llmc, headerless, megatron };

struct TokenWriterOptions {
  io::Path out;  // "folder/train" becomes train.bin, or train_000000.bin, train_000001.bin, ... in shards
  ShardFormat format = ShardFormat::llmc;
  std::int64_t vocab = 0;         // of what is written: up to 65,536 ids take two bytes each, more take four
  std::int64_t shard_tokens = 0;  // a document that would go beyond begins a new shard where it fits into one; 0: a single file
  bool overwrite = false;
};

struct WrittenShard {
  io::Path path;
  std::int64_t tokens = 0;
};

class TokenWriter {
 public:
  // Bad input when a file of the result exists already and may not be replaced, or the format cannot hold the ids.
  TokenWriter(io::FileSystem& file_system, TokenWriterOptions options);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();

  void write(std::span<const std::int32_t> ids);  // of the current document
  void end_document();
  // Closes and names everything. No tokens at all is bad input.
  std::vector<WrittenShard> finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }

 private:
  struct Shard;

  Shard& current();
  void begin_shard();
  void close_shard();
  std::string shard_name(std::size_t index) const;
  io::Path folder() const;
  void give_names();
  void remove_stale();
  void remove_all() noexcept;

  io::FileSystem& file_system_;
  TokenWriterOptions options_;
  std::int64_t width_ = 2;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
  io::Path mark_;
  std::vector<io::Path> named_;  // by a finish() that is under way
  bool replacing_ = false;       // something that was there before is gone
  bool finished_ = false;
};

}  // namespace plimsoll::formats
