// A long row of token ids that can be read anywhere: what every token file, tokenised text and list of shards becomes.
//
// Reading is const and safe from several threads. Sources do not know the model's vocabulary; check_ids does the one
// check that makes ids safe to use as table indices, and can name the file and position of a bad one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace plimsoll::formats {

class TokenSource {
 public:
  struct Place {
    std::string file;
    std::int64_t position = 0;  // in tokens
  };

  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;
  // The tokens [begin, begin + out.size()), which must lie within the source.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  // Where a token is stored, for messages.
  virtual Place place_of(std::int64_t position) const = 0;
  // (optional) Positions at which documents begin, ascending from 0; empty when the format does not say.
  virtual std::span<const std::int64_t> document_starts() const { return {}; }
};

// A copy of these ids; packed_tokens.h has those of whole texts.
std::unique_ptr<TokenSource> tokens_in_memory(std::string name, const std::vector<std::int32_t>& ids,
                                              std::vector<std::int64_t> document_starts = {});

// One after the other, as if they were one. Documents are known when all parts know theirs.
std::unique_ptr<TokenSource> concatenate(std::vector<std::unique_ptr<TokenSource>> parts);

// Refuses (bad input: file, position, id, vocabulary) an id outside [0, vocab) among `ids`, read from `begin` on.
void check_ids(const TokenSource& source, std::int64_t begin, std::span<const std::int32_t> ids, std::int64_t vocab);

// The same for the whole source, before any work starts; returns the largest id.
std::int32_t check_all_ids(const TokenSource& source, std::int64_t vocab);

}  // namespace plimsoll::formats
