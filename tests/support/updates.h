// Updates as tests write them down: by the rule's name and its settings.
#pragma once

#include <optional>

#include "ops/op.h"
#include "ops/optim/rules.h"

namespace plimsoll::tests {

struct AdamUpdate {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;
  bool copy = false;
  bool split = false;
  bool leaves = false;
  std::optional<base::DType> sends = {};

  operator ops::Update() const {  // NOLINT(google-explicit-constructor): stands for one
    return {.rule = &ops::update_rule(decoupled ? "adamw" : "adam"),
            .numbers = {beta1, beta2, eps},
            .weight_decay = weight_decay,
            .copy = copy,
            .split = split,
            .leaves = leaves,
            .sends = sends};
  }
};

struct SgdUpdate {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool copy = false;
  bool leaves = false;
  std::optional<base::DType> sends = {};

  operator ops::Update() const {  // NOLINT(google-explicit-constructor)
    return {.rule = &ops::update_rule(momentum != 0.0 ? "momentum" : "sgd"),
            .numbers = {momentum},
            .weight_decay = weight_decay,
            .copy = copy,
            .leaves = leaves,
            .sends = sends};
  }
};

}  // namespace plimsoll::tests
