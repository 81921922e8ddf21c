// From the seconds of a step to what a whole training takes: days, energy, money, and what failures add.
#pragma once

#include <cstdint>

namespace plimsoll::planner {

struct RunPrices {
  double device_hour = 0.0;      // money; 0: not known
  double watts = 0.0;            // of a device with its share of the node; 0: not known
  double overhead = 1.1;         // of the building: energy drawn for each unit of energy used
  double kg_per_kwh = 0.48;      // CO2; the world's average grid
  double device_mtbf = 0.0;      // hours between failures of one device; 0: nothing fails
  double save_seconds = 0.0;     // that training waits for a checkpoint
  double restart_seconds = 0.0;  // from a failure to the next step
};

struct WholeRun {
  std::int64_t steps = 0;           // 0: only what failures cost was asked
  double training_seconds = 0.0;    // steps alone
  double effective_share = 1.0;     // of the wall time, what is spent on steps that count
  double save_every_seconds = 0.0;  // the interval that costs least; 0: nothing fails
  double wall_seconds = 0.0;        // with saves, restarts and what is lost
  double device_hours = 0.0;
  double kwh = 0.0;
  double kg_co2 = 0.0;
  double money = 0.0;
};

WholeRun whole_run(double tokens, double tokens_per_step, double step_seconds, std::int64_t devices, const RunPrices& prices);

// Failures come at random, `between` seconds apart on average. What a second of work then takes, if it is saved every `interval` seconds,
// a save takes `save` and a restart `restart` (J. T. Daly's complete model, which holds for any of them).
double seconds_per_second(double between, double interval, double save, double restart);

// The interval for which that is least.
double best_interval(double between, double save);

}  // namespace plimsoll::planner
