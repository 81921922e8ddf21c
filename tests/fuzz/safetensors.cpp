// Safetensors files: whatever is accepted lies within its bytes and comes out of the writer as the same tensors.
//
// The first byte chooses the form: the file as it is, or two bytes of data length and a header, to which the length field
// and the data are added, so that a mutation of the header does not have to guess its own length.
#include "formats/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "formats/safetensors_writer.h"
#include "io/files.h"

namespace {

using namespace plimsoll;
using formats::Safetensors;

std::string file_of(std::string_view input) {
  if (input[0] % 2 == 0 || input.size() < 3) return std::string(input.substr(1));
  const std::size_t data = static_cast<unsigned char>(input[1]) + 256u * static_cast<unsigned char>(input[2]);
  const std::uint64_t length = input.size() - 3;
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(input.substr(3)).append(data, '\x40');
}

Safetensors parse(const std::string& bytes) {
  auto keeper = std::make_shared<std::string>(bytes);
  return Safetensors::parse({io::as_bytes(*keeper), keeper}, "fuzz");
}

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string bytes = file_of({reinterpret_cast<const char*>(data), size});
  std::vector<formats::TensorSpec> specs;
  std::string content;
  std::map<std::string, std::string> metadata;
  try {
    const Safetensors file = parse(bytes);
    metadata = file.metadata();
    for (const formats::TensorView& view : file.tensors()) {
      expect(&file.at(view.name) == &view);
      expect(formats::bytes_of(view) == std::ssize(view.data));
      if (formats::converts_to_f32(view.dtype)) expect(std::ssize(formats::to_f32(view)) == formats::elements_of(view));
      specs.push_back({view.name, view.dtype, view.shape});
      content.append(reinterpret_cast<const char*>(view.data.data()), view.data.size());
    }
  } catch (const base::Error&) {
    return 0;
  }
  const std::vector<formats::TensorSpec> before = specs;
  const Safetensors again = parse(formats::safetensors_header(specs, metadata) + content);
  expect(again.tensors().size() == before.size() && again.metadata() == metadata);
  for (const formats::TensorSpec& spec : before) expect(static_cast<const formats::TensorSpec&>(again.at(spec.name)) == spec);
  return 0;
}
