// Manifests of checkpoints: whatever is accepted covers its tensors within its files and is written as the same manifest.
//
// The first byte chooses the form: the text as it is, or a body that is given its digest, without which no mutation would
// come past the first check.
#include "checkpoint/manifest.h"

#include <cstdlib>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string text = data[0] % 2 == 0 ? std::string(input) : checkpoint::seal_manifest(data[0] % 8 == 7 ? 2 : 1, input);
  checkpoint::Manifest manifest;
  try {
    manifest = checkpoint::parse_manifest(text, "fuzz");
  } catch (const base::Error&) {
    return 0;
  }
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    std::int64_t covered = 0;
    for (const checkpoint::Piece& piece : tensor.pieces) {
      const checkpoint::FileRecord& file = manifest.files.at(static_cast<std::size_t>(piece.file));
      if (piece.begin != covered || piece.offset < 0 || piece.offset + piece.bytes > file.bytes) std::abort();
      covered += piece.bytes;
    }
    if (covered != tensor.bytes() || manifest.find(tensor.name) != &tensor) std::abort();
  }
  if (!(checkpoint::parse_manifest(checkpoint::write_manifest(manifest), "again") == manifest)) std::abort();
  return 0;
}
