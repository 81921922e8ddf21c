// Token files: whatever is accepted can be read from the first token to the last, and its documents begin within it.
//
// The first byte chooses the form: a file by itself, one without a header (two or four bytes an id), or both halves of a Megatron
// dataset, where the second byte says how many bytes of tokens follow and the rest is the index.
#include "formats/token_file.h"

#include <cstdlib>

#include "base/error.h"
#include "memory_files.h"

namespace {

using namespace plimsoll;

void expect(bool holds) {
  if (!holds) std::abort();
}

void read_all(const formats::TokenSource& source) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(source.size(), 5000)));
  expect(source.size() > 0);
  source.read(0, ids);
  source.read(source.size() - std::ssize(ids), ids);
  source.place_of(source.size() - 1);
  std::int64_t previous = -1;
  for (const std::int64_t start : source.document_starts()) {
    expect(start > previous && start < source.size());
    previous = start;
  }
  expect(source.document_starts().empty() || source.document_starts()[0] == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  tests::MemoryFiles files;
  formats::TokenFileOptions options;
  switch (data[0] % 4) {
    case 0: files.put("t.bin", std::string(input.substr(1))); break;
    case 1:
      files.put("t.bin", std::string(input.substr(1)));
      options.token_bytes = 4;
      break;
    case 2: {
      const std::size_t tokens = std::min<std::size_t>(data[1], size - 2);
      files.put("t.bin", std::string(input.substr(2, tokens)));
      files.put("t.idx", std::string(input.substr(2 + tokens)));
      break;
    }
    default: {  // an index whose header is right, so that mutations reach what lies behind it
      const std::size_t tokens = std::min<std::size_t>(data[1], size - 2);
      files.put("t.bin", std::string(input.substr(2, tokens)));
      files.put("t.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) + std::string(input.substr(2 + tokens)));
      break;
    }
  }
  try {
    read_all(*formats::open_token_file(files, "t.bin", options));
  } catch (const base::Error& error) {
    expect(error.kind() == base::ErrorKind::bad_input);
  }
  return 0;
}
