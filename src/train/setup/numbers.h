// The data of models that read numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/run.h"
#include "data/batch.h"
#include "io/file_system.h"

namespace plimsoll::train {

// One table, of data.train or data.valid; evaluation reads it in its order.
std::shared_ptr<const data::SampleSource> open_numbers(io::FileSystem& file_system, const config::Run& run,
                                                       const std::vector<std::string>& files, bool evaluation);

}  // namespace plimsoll::train
