// A schedule file: whatever is accepted is written and read back as the same, and the verifier and the simulator agree on it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/simulate.h"
#include "strategy/schedules/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  using namespace plimsoll::strategy::schedules;
  const Shape shape{.ranks = 2, .micro_batches = 2, .chunks = 2};
  Schedule schedule;
  try {
    schedule = parse_csv(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.csv", shape);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input || std::string_view(error.what()).empty()) std::abort();
    return 0;
  }
  if (!(parse_csv(write_csv(schedule), "fuzz.csv", shape) == schedule)) std::abort();
  if (!problems_of(schedule).empty()) return 0;
  const Figures all = figures(schedule, simulate(schedule, {}));  // stops if a rank waits for ever
  if (all.makespan < 1.0 || all.bubble_fraction < -1e-9) std::abort();
  return 0;
}
