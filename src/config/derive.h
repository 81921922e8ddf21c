// What follows from the settings that were given: defaults worked out from others, then the rules between settings.
#pragma once

#include "config/run.h"

namespace plimsoll::config {

// Fills derived defaults and records how each was derived. May be called again after the model has become known.
void derive(Run& run);

// Throws bad_input when settings contradict each other, with the numbers and the nearest values that would do.
void check(const Run& run);

// The model's description is known: given in the file, or its directory has been read.
bool model_known(const Run& run);

}  // namespace plimsoll::config
