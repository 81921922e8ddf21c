// What the families of transformers share: their settings, heads, dealing out, and what is wrong with a description.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "families/family.h"

namespace plimsoll::families {

// The shared settings of every transformer, and more.
std::vector<std::string_view> transformer_settings(std::initializer_list<std::string_view> more);
std::vector<Derived> four_times_width_and_dropouts();
// A model of so many layers, whose feed-forward part is four times as wide.
model::Model sized(model::Family family, std::int64_t layers, std::int64_t width, std::int64_t heads);

// What is wrong with any transformer; false where sizes are, so that nothing more can be said.
bool transformer_problems(const model::Model& model, std::vector<std::string>& found);
void equal_heads_problems(const model::Model& model, std::vector<std::string>& found);

ops::Heads heads_of(const model::Model& model);
// How the rows that make packed heads, and the columns that take what attention gives, are dealt out over tensor ranks.
// Queries, keys and values.
base::Shape matrices_in_packed(const ops::Heads& heads);
ops::Placement dealt_packed(const ops::Heads& heads);
ops::Placement dealt_queries(const ops::Heads& heads);
ops::ActivationKind activation_of(const model::Model& model);
// "blocks.7"
std::string block_name(std::int64_t layer);

// Of configurations that have no size of a head.
bool heads_make_width(std::string_view type, const model::Model& model);
std::string why_heads_do_not_make_width(const model::Model& model);

// Weights and biases of a block whose linear layers all have both.
std::int64_t biased_block_parameters(const model::Model& model);

}  // namespace plimsoll::families
