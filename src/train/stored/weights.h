// A session's parameters as f32, whatever they are stored as: the way in and out for model files and checkpoints.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"
#include "train/session/session.h"

namespace plimsoll::train {

struct ParameterInfo {
  std::string name;
  base::Shape shape;
};

std::vector<ParameterInfo> parameters_of(const Session& session);

// Rows of a parameter from `first_row` on, to be written to `rows`. What has one dimension has a row for each element.
using FillRows = std::function<void(const ParameterInfo& info, std::int64_t first_row, std::span<float> rows)>;

// Fills what this rank holds of every parameter. Only what is whole, in f32 and in memory is filled at once, where it lies; everything
// else goes through memory some rows at a time, and rows that other ranks hold are not asked for. Copies in the compute type follow.
void write_parameters(Session& session, const FillRows& fill);

// The parameter in f32; unrounded where the session trains.
// Where ranks share it out, all of them must ask together.
std::vector<float> read_parameter(Session& session, const std::string& name);

// The gradient of the last step (the session must keep gradients), as it was before clipping.
std::vector<float> read_gradient(const Session& session, const std::string& name);

}  // namespace plimsoll::train
