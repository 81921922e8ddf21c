// The price of one operator on one device, and how its work is counted.
//
// Where the device has measured samples of the operator (cluster::Sample), the price is interpolated between them; else it is
// the larger of what its arithmetic and its memory take at the device's rates (a roofline), the arithmetic of matrix products with
// an efficiency that follows from the shape (matrix.h).
#pragma once

#include <array>
#include <cstdint>

#include "cluster/cluster.h"
#include "ops/definition.h"

namespace plimsoll::cost {

// What an operator's speed depends on: (rows, columns, depth) of a matrix product, (queries x keys, head size, heads x samples) of
// attention, less what a pattern leaves out, (bytes, 1, 1) of everything else.
std::array<std::int64_t, 3> extents_of(const ops::Op& op, ops::Types inputs, ops::Types outputs);

// The type that its speed depends on: of the first operand of floats.
base::DType type_of(ops::Types inputs);

// Seconds on an idle device. `threads` are those of the rank where the device is a processor.
double operator_seconds(const cluster::Device& device, const ops::Op& op, ops::Types inputs, ops::Types outputs, std::int64_t threads = 0);

// The same on the host of a node of which `users` ranks compute at once.
double host_operator_seconds(const cluster::Cluster& cluster, const ops::Op& op, ops::Types inputs, ops::Types outputs, std::int64_t users,
                             std::int64_t threads = 0);

// Operations as published tables count them: those of matrix products alone, two for each multiplication, attention without
// leaving out what a causal mask hides.
double counted_flops(const ops::Op& op, ops::Types inputs, ops::Types outputs);

}  // namespace plimsoll::cost
