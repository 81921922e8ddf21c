// A model family declared outside src: layers of any width on rows of numbers, and what the first of them made joins the last.
#pragma once

#include "model/model.h"

namespace plimsoll::extending {

// "widths": of its layers; "features" and "outputs": numbers of a row, and what is made of them; "task": "regress", where outputs are the
// last columns of a row, or "classify", where the last column is one of so many classes.
model::Family perceptron();

}  // namespace plimsoll::extending
