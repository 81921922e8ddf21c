#include "train/session/programs.h"

#include <utility>

#include "base/error.h"
#include "graph/programs/programs.h"

namespace plimsoll::train {

namespace {

graph::Graph training_graph(const SessionOptions& options) {
  graph::Graph graph = graph::training_graph(options.forward, options.training, options.pass_done);
  if (!options.keep_gradients) return graph;
  for (const graph::Parameter& parameter : graph.parameters) {
    if (parameter.gradient.valid()) graph.results.push_back(parameter.gradient);
  }
  return graph;
}

model::Training shaped(const SessionOptions& options, const model::MicroBatch& micro_batch) {
  model::Training training = options.training;
  training.micro_batch = micro_batch;
  return training;
}

graph::Graph continuation(const SessionOptions& options, std::int64_t rows, bool logits) {
  return graph::continuation_graph(options.forward, shaped(options, {1, rows}), {.slots = options.decode->slots, .logits = logits});
}

std::int32_t one(const SessionOptions&) { return 1; }

struct OwnProgram {
  std::string_view name;
  bool (*wanted)(const SessionOptions& options);
  graph::Graph (*write)(const SessionOptions& options);
  std::int32_t (*micro_batches)(const SessionOptions& options);
};

constexpr OwnProgram kPrograms[] = {
    {kTrain, [](const SessionOptions& options) { return options.train; }, training_graph,
     [](const SessionOptions& options) { return options.micro_batches; }},
    {kEvaluate, [](const SessionOptions& options) { return options.evaluate; },
     [](const SessionOptions& options) { return graph::evaluation_graph(options.forward, options.training); },
     [](const SessionOptions& options) { return static_cast<std::int32_t>(options.strategy.turn()) * options.evaluation_turns; }},
    {kInfer, [](const SessionOptions& options) { return options.infer.has_value(); },
     [](const SessionOptions& options) { return graph::inference_graph(options.forward, shaped(options, *options.infer)); }, one},
    {kDecode, [](const SessionOptions& options) { return options.decode.has_value(); },
     [](const SessionOptions& options) { return continuation(options, 1, true); }, one},
    {kPrefill, [](const SessionOptions& options) { return options.decode.has_value(); },
     [](const SessionOptions& options) { return continuation(options, options.decode->prompt_rows, false); }, one},
};

}  // namespace

std::vector<ProgramSource> programs_of(const SessionOptions& options) {
  std::vector<ProgramSource> sources;
  for (const OwnProgram& program : kPrograms) {
    if (program.wanted(options)) sources.push_back({std::string(program.name), program.write(options), program.micro_batches(options)});
  }
  for (const AddedProgram& added : options.programs) {
    PLIMSOLL_CHECK(options.train && !sources.empty(), "{} is added to a session that does not train", added.name);
    sources.push_back({added.name, added.write(sources.front().graph), 1, added.cadence, added.role});
    graph::verify(sources.back().graph, added.name);
  }
  PLIMSOLL_CHECK(!sources.empty(), "a session without programs");
  return sources;
}

}  // namespace plimsoll::train
