#include "graph/programs/programs.h"

#include <utility>

#include "graph/models/models.h"
#include "graph/programs/pass_table.h"

namespace plimsoll::graph {

namespace {

BuildOptions options_for(Purpose purpose, const model::Training& training) {
  return {.purpose = purpose, .precision = training.precision, .micro_batch = training.micro_batch, .segmented = training.segmented};
}

Graph program_graph(const BuildOptions& options, const WriteForward& forward, const model::Training& training, const PassDone& done = {}) {
  Builder build(options);
  forward(build);
  Graph graph = std::move(build).finish();
  verify(graph, "building");
  run_build_passes(graph, {.purpose = options.purpose, .training = training}, done);
  return graph;
}

WriteForward writer_of(const model::Model& model) {
  return [model](Builder& build) { build_forward(model, build); };
}

}  // namespace

Graph training_graph(const WriteForward& forward, const model::Training& training, const PassDone& done) {
  return program_graph(options_for(Purpose::train, training), forward, training, done);
}

Graph evaluation_graph(const WriteForward& forward, const model::Training& training) {
  return program_graph(options_for(Purpose::evaluate, training), forward, training);
}

Graph inference_graph(const WriteForward& forward, const model::Training& training) {
  return program_graph(options_for(Purpose::infer, training), forward, training);
}

Graph continuation_graph(const WriteForward& forward, const model::Training& training, const Continuation& continuation) {
  BuildOptions options = options_for(Purpose::infer, training);
  options.cache_slots = continuation.slots;
  options.logits = continuation.logits;
  return program_graph(options, forward, training);
}

Graph training_graph(const model::Model& model, const model::Training& training) { return training_graph(writer_of(model), training); }
Graph evaluation_graph(const model::Model& model, const model::Training& training) { return evaluation_graph(writer_of(model), training); }
Graph inference_graph(const model::Model& model, const model::Training& training) { return inference_graph(writer_of(model), training); }

}  // namespace plimsoll::graph
