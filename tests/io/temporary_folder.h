// A folder for one test, removed with everything in it afterwards.
#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>

namespace plimsoll::tests {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& place = std::filesystem::temp_directory_path()) {
    std::string pattern = (place / "plimsoll-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The same in memory, where syncing costs nothing; in the usual place on machines without /dev/shm.
class MemoryFolder : public TemporaryFolder {
 public:
  MemoryFolder() : TemporaryFolder(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
};

}  // namespace plimsoll::tests
