// The forward pass of each family, one file each.
#pragma once

#include "graph/builder.h"
#include "model/model.h"

namespace plimsoll::graph {

void build_gpt2(const model::Model& model, Builder& build);
void build_llama(const model::Model& model, Builder& build);
void build_bert(const model::Model& model, Builder& build);

// The family's builder.
void build_forward(const model::Model& model, Builder& build);

ops::Heads heads_of(const model::Model& model);
// How the rows that make packed heads, and the columns that take what attention gives, are dealt out over tensor ranks.
// Queries, keys and values.
base::Shape matrices_in_packed(const ops::Heads& heads);
ops::Placement dealt_packed(const ops::Heads& heads);
ops::Placement dealt_queries(const ops::Heads& heads);
ops::ActivationKind activation_of(const model::Model& model);
// "blocks.7"
std::string block_name(std::int64_t layer);

// Angle per position of each pair of dims, with the model's scaling.
std::vector<double> rope_frequencies(const model::Model& model);

}  // namespace plimsoll::graph
