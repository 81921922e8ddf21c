// Which family a configuration is of, and which kind of configuration a model gets.
#pragma once

#include "base/json.h"
#include "families/family.h"

namespace plimsoll::formats {

struct HfKind {
  model::Family family;
  const families::FileKind* kind;

  const families::Files& files() const { return *family->files; }
};

// What the model's family says of such folders; refuses one that says nothing.
const families::Files& hf_files_of(const model::Model& model);
// Of a configuration that was read; refuses types that we do not compute.
HfKind hf_kind_of(const base::Json& config);
// For writing: the type in `original` where it can describe the model, else the simplest that can.
HfKind hf_kind_for(const model::Model& model, const base::Json& original);

}  // namespace plimsoll::formats
