// Every family. A new one is a folder beside this file and a row here.
#pragma once

#include "model/model.h"

namespace plimsoll::families {

model::Family gpt2();
model::Family llama();
model::Family bert();

using FamilyRow = model::Family (*)();
inline constexpr FamilyRow kAllFamilies[] = {gpt2, llama, bert};

}  // namespace plimsoll::families
