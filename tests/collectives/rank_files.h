// What the ranks of collectives_ranks left behind, and a folder for it.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "io/temporary_folder.h"

namespace plimsoll::collectives::tests {

struct RankEnd {
  bool found = false;
  int code = -1;
  std::int64_t milliseconds = 0;  // steady
  std::string text;
};

inline RankEnd end_of(const std::filesystem::path& folder, int rank) {
  std::ifstream file(folder / ("rank-" + std::to_string(rank)));
  RankEnd end;
  if (!(file >> end.code >> end.milliseconds)) return end;
  end.found = true;
  file.get();
  end.text.assign(std::istreambuf_iterator<char>(file), {});
  return end;
}

// The process of a rank that is well under way; 0 before that.
inline int process_of(const std::filesystem::path& folder, int rank) {
  std::ifstream file(folder / ("ready-" + std::to_string(rank)));
  int process = 0;
  file >> process;
  return file.good() ? process : 0;  // good: the line's end was written too
}

inline bool all_ready(const std::filesystem::path& folder, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (process_of(folder, rank) == 0) return false;
  }
  return true;
}

inline std::int64_t steady_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace plimsoll::collectives::tests
