// What a checkpoint consists of: the one text that says which bytes are which tensor, and sums of all of them.
//
//   {"plimsoll_checkpoint":1,"sha256":"<64 digits>","run":..,"config":..,"step":..,"state":..,"files":..,"tensors":..}
//
// The digest covers every other byte of the text, so that no bit of it can change unnoticed; block sums in it cover
// every byte of the data files. The envelope up to the digest is the same in every version of the format: a reader can
// tell a newer checkpoint from a broken one. Nothing in the text is trusted for having the right digest: sizes, ranges
// and names are checked before anything is read or allocated by them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"

namespace plimsoll::checkpoint {

inline constexpr std::int64_t kFormatVersion = 1;
inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{64} << 20;  // sums of 8 TB

// Whose checkpoint it is. A run resumes only from its own; an empty field of an expected identity fits everything.
struct Identity {
  std::string run;     // which run
  std::string config;  // digest of all that must be the same for the numbers to continue

  bool operator==(const Identity&) const = default;
};

// Bytes [begin, begin + bytes) of a tensor lie at `offset` of a file.
struct Piece {
  std::int64_t file = 0;
  std::int64_t offset = 0;
  std::int64_t begin = 0;
  std::int64_t bytes = 0;

  bool operator==(const Piece&) const = default;
};

struct TensorRecord {
  std::string name;
  base::DType dtype = base::DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;  // by begin; they cover the tensor without overlap

  std::int64_t bytes() const;
  bool operator==(const TensorRecord&) const = default;
};

struct FileRecord {
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> sums;  // CRC-32C of each block; the last may be shorter

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  Identity identity;
  std::int64_t step = 0;
  base::Json state;  // what else the run needs to continue: data position, counters
  std::int64_t block_bytes = kBlockBytes;
  std::vector<FileRecord> files;      // data-00000.bin, data-00001.bin, ...
  std::vector<TensorRecord> tensors;  // by name

  const TensorRecord* find(std::string_view tensor) const;
  std::int64_t data_bytes() const;
  bool operator==(const Manifest&) const = default;
};

// Written by a version of Plimsoll that knows more than this one.
class NewerFormat : public base::Error {
 public:
  using Error::Error;
};

std::string write_manifest(const Manifest& manifest);
// `name` is what messages call the text. Throws bad_input, or NewerFormat.
Manifest parse_manifest(std::string_view text, const std::string& name);

// "f32[768, 3072]"
std::string describe(base::DType dtype, const std::vector<std::int64_t>& shape);

// The text with its digest put in; for whoever must make one from a body that is not a Manifest, such as tests.
std::string seal_manifest(std::int64_t version, std::string_view body);

}  // namespace plimsoll::checkpoint
