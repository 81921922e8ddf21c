// The processor as a backend: always there.
#pragma once

#include "executor/core/backend.h"

namespace plimsoll::executor {

const Backend& cpu_backend();

}  // namespace plimsoll::executor
