// A folder with a tiny run in it (run.json, train.txt, valid.txt; results go to out/), in which `plimsoll` is started.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/program.h"
#include "io/temporary_folder.h"

namespace plimsoll::tests {

inline constexpr std::string_view kTinyRun = R"({
  "model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 32, "vocab": 256, "dropout": 0.1},
  "data": {"train": "train.txt", "valid": "valid.txt"},
  "batch": {"global": 4, "micro": 2, "sequence": 16},
  "steps": 6,
  "eval": {"every": 3, "batches": 2},
  "checkpoint": {"every": 2, "keep": 2},
  "threads": 2,
  "out": "out"
})";

class RunFolder {
 public:
  RunFolder();

  std::filesystem::path path(std::string_view name = "") const { return folder_.path() / name; }
  bool exists(std::string_view name) const { return std::filesystem::exists(path(name)); }
  std::string read(std::string_view name) const { return read_file(path(name)); }
  void write(std::string_view name, std::string_view content) const { write_file(path(name), content); }

  Ended plimsoll(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) const;

  // The files in the folder and those under it, without the streams of children.
  std::vector<std::string> files() const;

 private:
  TemporaryFolder folder_;
};

std::vector<std::string> plimsoll_command(const std::vector<std::string>& arguments);

std::vector<std::string> lines_of(std::string_view text);

// One number of every line of a metrics file, as it is written there.
std::vector<std::string> column(std::string_view metrics, std::string_view key);

}  // namespace plimsoll::tests
