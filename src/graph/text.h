// The printed form of a graph, and its reader. What one prints the other reads back, to the last field:
//
//   block first
//   block second {stage=1}
//
//   forward first:
//     input x f32[2, 4]
//     parameter w f32[8, 4] {init=normal(std=0.02), deal=split(units=8)}
//     y f32[2, 8] = linear <- x, w
//
//   forward second:
//     ...
//
//   trained w {master=w.master, states=(w.m, w.v), gradient=w.grad}
//   results: y
//   scalars: s
//
// A line is a block; a heading, the phase and the block of what follows; a root, its role, name and type; a node, its results, operator and
// operands; or, at the end, a parameter with what belongs to it, and what the graph as a whole points at. What a line says in braces
// differs from the default. A value that no node makes any more stands as a root of the role `computed`. `step_scalars` is a type.
//
// Values are numbered as they appear: each takes the smallest number that is free. Where it has another, or its name is not its own, it is
// written NAME%NUMBER. So are blocks. `_` is no value and no block, and names of other characters than letters, digits and ._+*/@#'- stand
// in quotes.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace plimsoll::graph {

std::string to_string(const Graph& graph);

// bad_input with the place, `name` and line, and the reason where the text is no printed graph. Whether the graph is well formed is for
// `problems` to say.
Graph parse_graph(std::string_view text, std::string_view name);

}  // namespace plimsoll::graph
