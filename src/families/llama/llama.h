// The parts of Llama's row.
#pragma once

#include "families/family.h"

namespace plimsoll::families {

void build_llama(const model::Model& model, graph::Builder& build);
Files llama_files();

// Angle per position of each pair of dims, with the model's scaling.
std::vector<double> rope_frequencies(const model::Model& model);

}  // namespace plimsoll::families
