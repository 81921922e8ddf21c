// What codecs write their piece of the graph with.
#pragma once

#include "codecs/codec.h"

namespace plimsoll::codecs {

// Whether a tensor of a checkpoint is what some codec remembered. Whoever has no use for it leaves it, and whoever finds none starts anew.
bool is_remembered(std::string_view state);

class Builder {
 public:
  // `may_skip`: a verdict may say that the step changes nothing, and then what codecs remember does not change either.
  explicit Builder(graph::Rewrite& rewrite, bool may_skip = false) : rewrite_(rewrite), may_skip_(may_skip) {}

  const base::TensorType& type(ValueId value) const { return rewrite_.to().values[value].type; }
  // The step scalars as the backward pass reads them.
  ValueId scalars() const { return rewrite_.now(rewrite_.from().scalars); }

  std::vector<ValueId> make(const Task& task, const ops::Op& op, std::vector<ValueId> inputs, const std::string& name) {
    return rewrite_.make(op, std::move(inputs), task.site, name);
  }
  ValueId make_one(const Task& task, const ops::Op& op, std::vector<ValueId> inputs, const std::string& name) {
    return make(task, op, std::move(inputs), name)[0];
  }
  // In that type.
  ValueId cast(const Task& task, ValueId value, base::DType dtype, const std::string& name);
  // The same memory with another shape; a larger one is filled up with zeros.
  ValueId shaped(const Task& task, ValueId value, const base::Shape& shape, const std::string& name);
  // One collective of all values among the ranks of the task.
  std::vector<ValueId> collective(const Task& task, ops::CollectiveKind kind, const std::vector<ValueId>& values, const std::string& name);

  // ---- what is remembered from step to step; once per operand and suffix

  // f32 of the operand's shape, zero at first: each rank's own, a summand of what all have yet to send.
  ValueId own_state(const Task& task, const Operand& operand, const std::string& suffix);
  // f32 of this rank's shard of it.
  ValueId shard_state(const Task& task, const Operand& operand, const std::string& suffix);
  // What stands for the state from here on.
  void remember(ValueId state, ValueId newest);
  // Behind the verdict: where the step is skipped, all states are as they were before it.
  void undo_where_skipped(ValueId scalars);

 private:
  struct Remembered {
    ValueId root;
    ValueId before{};  // as it was before the step; invalid where no step is skipped
    ValueId newest{};
    graph::BlockId block{};
  };
  ValueId add_state(const Task& task, graph::Value value);

  graph::Rewrite& rewrite_;
  bool may_skip_;
  std::vector<Remembered> remembered_;
};

// Feedback of an error: what was lost of an operand is added to the next one.
//   const ValueId z = feedback.added(x);  ..  feedback.keep(z, y);   // y: what others were sent of z
class Feedback {
 public:
  Feedback(Builder& build, const Task& task, ValueId error, std::string name)
      : build_(build), task_(task), error_(error), name_(std::move(name)) {}
  ValueId added(ValueId x) const;
  void keep(ValueId z, ValueId y) const;

 private:
  Builder& build_;
  const Task& task_;
  ValueId error_;
  std::string name_;
};

}  // namespace plimsoll::codecs
