// The cases of the corpus: combinations of the tables' rows (tables.h), the same list on every machine.
//
// A case is named by its rows, "zero3/full/llama/bf16/micro1/cpu": whatever is added to the tables, a name means what it did. What cannot
// be run stays in the list: how it is refused is compared too.
#pragma once

#include <string>
#include <vector>

#include "config/run.h"
#include "plan/plan.h"
#include "train/session/session.h"

namespace plimsoll::corpus {

enum class Target { cpu, described, outline, generate };

struct Case {
  std::string name;
  Target target = Target::cpu;
  bool trained = false;                        // its losses are stored too
  std::vector<std::string> set;                // differences to the run that all cases share
  std::string cluster = "dgx-a100-80g";        // of devices that are only described
  const executor::Backend* backend = nullptr;  // in the place of the processor's
};

// Every layout with every use of memory that the tables pair it with, and as many more as it takes for each row to meet each other.
std::vector<Case> cases();
// Those of them for the processor, planned for another device.
std::vector<Case> cases_for(const executor::Backend& backend);

// base::Error where a case cannot be run. Options are those that training would have, but for what depends on the machine: the number of
// threads, the memory that is there and its measured rates.
config::Run run_of(const Case& one);
train::SessionOptions options_of(const Case& one, const config::Run& run);
plan::Plan plan_of(const Case& one);

}  // namespace plimsoll::corpus
