// Llama's half of a config.json, which its relatives share.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/model.h"

namespace plimsoll::families {

model::Model read_llama(std::string_view type, const base::Json& config);
void set_llama(std::string_view type, const model::Model& model, base::Json& config);
bool describes_llama(std::string_view type, const model::Model& model);
std::string why_no_llama(const model::Model& model);

}  // namespace plimsoll::families
