// The table of families, and what is asked of a model by its family's row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/all.h"
#include "families/family.h"

namespace plimsoll::families {

std::span<const model::Family> all_families();
model::Family find_family(std::string_view name);  // nullptr when there is none
std::vector<std::string> family_names();

// Ready-made models, such as "gpt2" or "llama-1b"; nullopt when there is none of that name.
std::optional<model::Model> preset(std::string_view name);
std::vector<std::string> preset_names();

// On which the fields of a run file are laid.
model::Model defaults(model::Family family);

// Every reason why the description is not a model, each naming the field, what was found and what was expected.
std::vector<std::string> problems(const model::Model& model);

std::int64_t parameter_count(const model::Model& model);

void build_forward(const model::Model& model, graph::Builder& build);

}  // namespace plimsoll::families
