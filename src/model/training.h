// What a user writes about training, beside the model itself: plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/forms/form.h"
#include "ops/optim/rules.h"

namespace plimsoll::model {

// What an update of a bf16 weight works on: a copy in f32, the same numbers with their upper halves in the weight itself, or the weight.
enum class Master { f32, split, none };

// How the optimizer's averages are stored.
enum class Moments { f32, bf16 };

// How weights that are not trained are stored: as they are computed with, or in a form of fewer bytes (ops/forms).

// Parameters that are updated otherwise than the rest: by their names, or patterns with *.
struct ParameterGroup {
  std::vector<std::string> match;
  double lr = 1.0;            // times the learning rate
  double weight_decay = 1.0;  // times the weight decay; where it is given, parameters of one dim decay too
  bool decays = false;        // it is given

  bool operator==(const ParameterGroup&) const = default;
};

struct Optimizer {
  const ops::UpdateRule* rule = &ops::update_rule("adamw");
  std::map<std::string, double, std::less<>> numbers;  // of the rule's settings, those that are not as usual
  double weight_decay = 0.1;                           // applied to parameters of two or more dims
  double clip = 1.0;                                   // global norm; 0 = off
  Master master = Master::f32;
  Moments moments = Moments::f32;
  std::vector<ParameterGroup> groups;  // the last that matches a parameter counts

  // A setting of the rule, or what another rule's would be.
  double number(std::string_view name) const;
  ops::RuleNumbers all_numbers(const ops::UpdateRule& of) const;
  // It makes no difference whether a setting is given as usual or left out.
  bool operator==(const Optimizer& other) const;
};

enum class Precision { f32, bf16, fp16, fp8 };

// fp16 only: the factor that keeps small gradients representable.
struct LossScaling {
  double initial = 65536.0;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  double minimum = 1.0;

  bool operator==(const LossScaling&) const = default;
};

// The shape of the work one rank does at a time.
struct MicroBatch {
  std::int64_t samples = 1;
  std::int64_t sequence = 1;

  bool operator==(const MicroBatch&) const = default;
};

struct Training {
  Optimizer optimizer;
  Precision precision = Precision::f32;
  LossScaling loss_scaling;
  MicroBatch micro_batch;
  std::int64_t amax_history = 0;    // fp8: micro-batches whose largest values scale the next; 0: each tensor's own value does
  bool accumulates = false;         // more than one micro-batch per step: gradients are summed in f32
  bool segmented = false;           // attention stays within documents; padding exists
  bool fused_head = true;           // head and loss in one pass; not where ranks share out the vocabulary
  bool delayed = false;             // a step updates with the gradient of the step before it
  bool masters = false;             // what is updated is a copy of the weight, whatever its type: where updates are made in another tier
  std::vector<std::string> freeze;  // parameter names or patterns with * that are not trained
  // How their matrices are stored, but those of the embedding and the head; null: as they are computed with.
  const ops::FormInfo* freeze_as = nullptr;
};

}  // namespace plimsoll::model
