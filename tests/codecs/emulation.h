// The graph that a codec writes, run on several ranks at once by the operators' references: what no executor has touched.
#pragma once

#include <vector>

#include "codecs/builder.h"
#include "graph/graph.h"
#include "kernels/cpu/reference/tensor.h"

namespace plimsoll::codecs {

using Values = std::vector<double>;

// A graph with the step scalars, a place for each rank's operand and the weight that it belongs to, in which a codec then writes.
class Emulation {
 public:
  struct Given {
    Choice choice;
    Wanted wanted = Wanted::sum;
    base::DType dtype = base::DType::f32;
    base::Shape whole{};  // of the tensor that all ranks have, or share out
    std::int64_t members = 2;
    bool by_rows = false;  // ranks share out its rows, not flat parts
    bool remembers = false;
  };
  explicit Emulation(const Given& given);

  // One step: by rank what it has, and what comes of it.
  std::vector<Values> step(const std::vector<Values>& operands, const ops::StepScalars& scalars = {});

  // By rank; the suffix is the state's.
  Values state(std::int64_t rank, std::string_view suffix) const;
  // That the member at place 0 sends.
  std::int64_t sent_bytes() const;
  const Ask& ask() const { return ask_; }
  const graph::Graph& graph() const { return graph_; }

 private:
  struct Rank {
    std::vector<kernels::cpu::reference::RefValue> values;  // by value of the graph
  };
  void write();
  void run_collective(const graph::Node& node);
  void run(const graph::Node& node);
  std::int64_t rows_of(std::int64_t rank) const;
  base::TensorType own_type() const;

  Given given_;
  Ask ask_;
  graph::Graph from_;
  graph::Graph graph_;
  ValueId operand_;
  std::vector<ValueId> results_;
  std::vector<Rank> ranks_;
  bool first_ = true;
};

}  // namespace plimsoll::codecs
