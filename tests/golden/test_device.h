// Where the golden models run: PLIMSOLL_TEST_DEVICE=cuda takes the same files to a GPU.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace plimsoll {

// The overrides of a run file, with the device.
inline std::vector<std::string> on_test_device(std::vector<std::string> overrides = {}) {
  const char* device = std::getenv("PLIMSOLL_TEST_DEVICE");
  overrides.push_back(std::string("device=") + (device != nullptr ? device : "cpu"));
  return overrides;
}

}  // namespace plimsoll
