// The cores that this process may use, and how its threads wait for each other.
#pragma once

#include <string_view>

namespace plimsoll::base {

// How many threads are worth starting: the cores that the system lets this process use, no more than a container's share of
// processor time pays for. Asked once.
int usable_cores();

// `allowed` cores, and what the file cpu.max of a control group says ("200000 100000": two cores' time; "max 100000": no limit).
int usable_cores(int allowed, std::string_view cpu_max);

// Starts the program anew with OpenMP's threads set to sleep soon while they wait, unless the environment already says how they wait.
// OpenMP reads that once, before main begins, so this belongs at the beginning of main. Left alone, threads of libgomp look 300,000
// times at what they wait for before they sleep: milliseconds, at every one of a step's many waits, in which they keep a core from the
// very thread that they wait for wherever another program uses the machine too.
void let_waiting_threads_sleep(char** arguments);

}  // namespace plimsoll::base
