// The token table on disk, by rows: `"embedding_rows": "disk"`.
//
// A step reads few rows of a large table. So the graphs are written for a small table, which has room for as many rows as the tokens of
// a step can name, and ids that count in it; to every pass that follows it is a parameter like any other. The table itself, and the
// optimizer's state of it, are on disk. Two programs of their own connect them: one brings the rows of a step, the other takes them
// back when the step has updated them. What a step does not read it does not update: no moment fades, no weight decays
// (docs/memory.md says it exactly). Who runs the programs numbers the ids and writes which rows they are (kRowIds).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "lowering/lower.h"
#include "plan/plan.h"

namespace plimsoll::lowering {

inline constexpr std::string_view kEmbeddingRows = "embedding_rows";  // the pass that puts the small table there
inline constexpr std::string_view kFetchRows = "fetch_rows";          // a program: rows of the ids in kRowIds from disk, between programs
inline constexpr std::string_view kStoreRows = "store_rows";          // a program: the same rows back to disk
inline constexpr std::string_view kRowIds = "rows.ids";               // a buffer of the host's memory: different ids, then a negative one
inline constexpr std::string_view kTokens = "tokens";                 // the input whose ids are numbered

// A table on disk and the rows of it that are here.
struct RowTable {
  struct Tensor {
    std::string on_disk;  // its name: that of the whole tensor
    graph::Role role = graph::Role::parameter;
    std::string here;
  };
  std::vector<Tensor> tensors;  // the weight in f32, then the optimizer's state
  std::string weight;           // the rows here as the model computes with them; may be the first tensor's
  std::string block;
  base::TensorType whole;  // of each tensor
  std::int64_t room = 0;   // rows here
};

// `work` with graphs that have the small table in the place of the large one, where the strategy says so; else with the inputs as they
// are. not_legal where the model needs its token table for more than looking up tokens.
plan::Plan with_rows_apart(const LoweringInputs& inputs, const std::function<plan::Plan(const LoweringInputs&)>& work);

// The parameter that looks up tokens; null where there is none.
const graph::Parameter* token_table(const graph::Graph& graph);

// How much of the table is here and what a step moves, in a line for people.
std::string note_of(const RowTable& table);

// A buffer of the rank that outlives programs, and its part of a whole tensor; null where there is none of the name.
struct KeptBuffer {
  const plan::Buffer* buffer = nullptr;
  ops::Part part{};
};
using FindBuffer = std::function<KeptBuffer(const std::string&)>;

// The graphs of the two programs, for a rank that has the rows where its buffers say.
graph::Graph fetch_rows(const RowTable& table, const FindBuffer& find);
graph::Graph store_rows(const RowTable& table, const FindBuffer& find);

}  // namespace plimsoll::lowering
