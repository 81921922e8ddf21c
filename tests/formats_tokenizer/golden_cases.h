// The stored tokenizers and what the reference packages made of the stored texts (tools/golden/make_tokenizers.py).
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/tokenizer.h"
#include "io/files.h"
#include "io/posix_file_system.h"

namespace plimsoll::formats::tokenizer {

inline const std::filesystem::path kGolden = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/formats_tokenizer/golden";

inline std::vector<base::Json> read_lines(const std::filesystem::path& path) {
  io::PosixFileSystem disk;
  const std::string text = io::read_text(disk, path);
  std::vector<base::Json> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(base::parse_json(std::string_view(text).substr(begin, end - begin), path.string(), {.strict = true}));
    begin = end + 1;
  }
  return lines;
}

inline std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const base::Json& line : read_lines(kGolden / "texts.jsonl")) texts.push_back(line.as_string());
  return texts;
}

inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::filesystem::path golden_file(const std::string& name) {
  const std::filesystem::path json = kGolden / name / "tokenizer.json";
  return std::filesystem::exists(json) ? json : kGolden / name / "tokenizer.model";
}

inline std::shared_ptr<const Tokenizer> open_golden(const std::string& name) {
  io::PosixFileSystem disk;
  return open_tokenizer(disk, golden_file(name).string());
}

inline std::vector<std::int32_t> ids_of(const base::Json& json) {
  std::vector<std::int32_t> ids;
  for (const base::Json& id : json.as_array()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  return ids;
}

}  // namespace plimsoll::formats::tokenizer
