#include "collectives/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace plimsoll::collectives {

namespace {

using Variable = std::function<const char*(const char*)>;

int number_in(const Variable& variable, const char* name, int lowest, int highest) {
  const char* text = variable(name);
  if (text == nullptr) base::bad_input("{} is not set; a rank needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT together", name);
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < lowest || number > highest) {
    base::bad_input("{} is \"{}\", expected a number from {} to {}", name, digits, lowest, highest);
  }
  return number;
}

std::string token_in(const Variable& variable) {
  for (const char* name : {"PLIMSOLL_TOKEN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE"}) {
    const char* text = variable(name);
    if (text == nullptr) continue;
    // It goes into a frame of somebody who has yet to be believed.
    constexpr std::size_t kLongest = 1024;
    if (std::string_view(text).size() > kLongest) base::bad_input("{} has more than {} characters", name, kLongest);
    return text;
  }
  return "";
}

}  // namespace

std::optional<Launch> launch_from(const Variable& variable) {
  if (variable("RANK") == nullptr && variable("WORLD_SIZE") == nullptr) return std::nullopt;
  Launch launch;
  launch.ranks = number_in(variable, "WORLD_SIZE", 1, 1 << 20);
  launch.rank = number_in(variable, "RANK", 0, launch.ranks - 1);
  if (variable("LOCAL_RANK") != nullptr) launch.local_rank = number_in(variable, "LOCAL_RANK", 0, launch.ranks - 1);
  if (const char* address = variable("MASTER_ADDR"); address != nullptr) launch.address = address;
  launch.token = token_in(variable);
  // One rank alone needs to meet nobody.
  if (launch.ranks > 1 || variable("MASTER_PORT") != nullptr) launch.port = number_in(variable, "MASTER_PORT", 1, 65535);
  return launch;
}

std::optional<Launch> launch_from_environment() {
  return launch_from([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace plimsoll::collectives
