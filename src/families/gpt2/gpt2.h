// The parts of GPT-2's row.
#pragma once

#include "families/family.h"

namespace plimsoll::families {

void build_gpt2(const model::Model& model, graph::Builder& build);
Files gpt2_files();

}  // namespace plimsoll::families
