// Every form made of blocks with a scale. A new one is a file beside these and a row here: the table (form.cpp) and the device's code are
// made from it.
#pragma once

#include "ops/forms/fp8.h"
#include "ops/forms/int4.h"
#include "ops/forms/int8.h"

namespace plimsoll::ops {

template <typename... Codes>
struct FormList {};

using AllForms = FormList<Int8Codes, Fp8Codes, Int4Codes>;

}  // namespace plimsoll::ops
