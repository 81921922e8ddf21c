// The golden models as Hugging Face folders: each has config.json and weights.safetensors as transformers saves them.
#pragma once

#include <string>
#include <vector>

#include "formats/hf_directory.h"
#include "io/files.h"
#include "io/posix_file_system.h"

namespace plimsoll::formats {

inline std::vector<io::Path> golden_folders(io::FileSystem& disk) {
  std::vector<io::Path> folders;
  for (const io::Path& weights : io::expand_glob(disk, PLIMSOLL_SOURCE_DIR "/tests/golden/data/*/weights.safetensors"))
    folders.push_back(weights.parent_path());
  return folders;
}

inline HfDirectory open_golden(io::FileSystem& disk, const io::Path& folder) {
  return HfDirectory::open(disk, folder, folder / "weights.safetensors");
}

inline HfDirectory golden_model(io::FileSystem& disk, const std::string& name) {
  return open_golden(disk, io::Path(PLIMSOLL_SOURCE_DIR "/tests/golden/data") / name);
}

inline std::vector<float> load(const HfDirectory& folder, const std::string& name) {
  for (const HfTensor& tensor : folder.tensors()) {
    if (tensor.name != name) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor.shape[0] * (tensor.shape.size() == 1 ? 1 : tensor.shape[1])));
    folder.load(name, 0, values);
    return values;
  }
  return {};
}

}  // namespace plimsoll::formats
