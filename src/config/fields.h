// The table of every setting of the run file, in the order they are shown and documented.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/field.h"

namespace plimsoll::config {

const std::vector<Field>& fields();
const Field* find_field(std::string_view key);  // nullptr when there is none

// "optimizer", "model.rope": a key that holds others.
bool is_group(std::string_view path);

// The keys and groups directly below a group ("" = the top), by their last word.
std::vector<std::string> keys_below(std::string_view group);

// Where the run file has a setting of an update rule: beta1 is one of "optimizer.betas".
std::string numbers_key(std::string_view number);

// Parts of the table, one function per file.
std::vector<Field> model_fields();
std::vector<Field> optimizer_fields();
std::vector<Field> strategy_fields();
std::vector<Field> limit_fields();
std::vector<Field> communication_fields();

}  // namespace plimsoll::config
