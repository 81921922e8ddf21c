// A run as programs that train nothing are to run it: evaluation, and text.
#pragma once

#include "config/run.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

// The run with its strategy as it is without training (strategy/forward.h), for `ranks` of them; 0: as many as the strategy has. A strategy
// that is open becomes the first that fits, from weights that are whole on the device to tiles of them on disk. not_legal where ranks would
// have nothing to do.
config::Run without_training(const config::Run& run, const Programs& programs, std::int64_t ranks, base::Bytes data_to_come = {});

}  // namespace plimsoll::train
