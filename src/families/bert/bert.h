// The parts of BERT's row.
#pragma once

#include "families/family.h"

namespace plimsoll::families {

void build_bert(const model::Model& model, graph::Builder& build);
Files bert_files();

}  // namespace plimsoll::families
