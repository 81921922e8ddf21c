// A family's tensors in Hugging Face folders (families/file_names.h), as this folder speaks of them.
#pragma once

#include "families/file_names.h"
#include "model/model.h"

namespace plimsoll::formats {

using families::HfNames;
using families::HfPart;
using families::HfPassenger;
using families::HfTensor;
using families::RowRun;

// `bare`: the base model was saved without the head around it, hence without the prefix `transformer.`, `model.` or `bert.`.
HfNames hf_names(const model::Model& model, bool bare = false);

}  // namespace plimsoll::formats
