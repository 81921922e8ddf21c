// `plimsoll eval`: the loss over data.valid, all of it unless told otherwise, by the run's strategy.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "collectives/agree.h"
#include "io/posix_file_system.h"
#include "train/evaluator.h"
#include "train/ranks.h"
#include "train/setup/forward_run.h"
#include "train/setup/setup.h"
#include "train/stored/stored_model.h"

namespace plimsoll::cli {

namespace {

// A model folder says no more than how long a sequence may be at most.
constexpr std::int64_t kUsualSequence = 1024;

train::Programs programs_of_eval() { return {.train = false, .evaluate = true, .draw_parameters = false}; }

Source source_of(io::FileSystem& file_system, const EvalOptions& options) {
  Source source = read_source(file_system, options.run);
  config::Run& run = source.run;
  if (!options.data.empty()) run.data.valid = options.data;
  if (run.data.valid.empty())
    base::bad_input("{}: found no \"data.valid\"; expected the text or token file to evaluate on: --data FILE", run.name);
  // What the run file says is for evaluations during training.
  if (options.batches) run.eval.batches = *options.batches;
  if (!options.batches && run.origin("eval.batches").kind != config::OriginKind::set) run.eval.batches = 0;
  if (!source.place.model_folder.empty() && !run.given("batch.sequence")) run.batch.sequence = std::min(run.model.context, kUsualSequence);
  return source;
}

// A pipeline whose places wait for one another behind every micro-batch works one place at a time: so many at once keep most of them busy.
constexpr std::int64_t kTurnsForAPlace = 4;

std::int32_t turns(const strategy::Strategy& strategy, std::int64_t batches) {
  if (strategy.pipe == 1) return 1;
  const std::int64_t in_a_turn = strategy.pipelines() * strategy.turn();
  return static_cast<std::int32_t>(std::min(kTurnsForAPlace * strategy.pipe, (batches + in_a_turn - 1) / in_a_turn));
}

void print(const EvalOptions& options, const config::Run& run, const std::string& origin, const observe::Evaluation& evaluation) {
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(base::Json::object({{"loss", evaluation.loss},
                                                            {"perplexity", std::exp(evaluation.loss)},
                                                            {"tokens", evaluation.tokens},
                                                            {"sequences", evaluation.sequences},
                                                            {"all_sequences", evaluation.all},
                                                            {"sequence", run.batch.sequence},
                                                            {"model", origin}})));
    return;
  }
  const std::string covered = evaluation.sequences == evaluation.all
                                  ? fmt::format("all {} sequences", evaluation.all)
                                  : fmt::format("the first {} of {} sequences", evaluation.sequences, evaluation.all);
  fmt::print("loss {:.4f}  perplexity {:.3f}  over {} tokens: {} of {} in data.valid, of {}\n", evaluation.loss, std::exp(evaluation.loss),
             evaluation.tokens, covered, run.batch.sequence, origin);
}

// What each rank does.
void evaluate(const EvalOptions& options, const config::Run& run, const train::StoredModel& stored, collectives::Transport* transport) {
  io::PosixFileSystem file_system;
  const observe::SystemClock clock;
  const train::Evaluator evaluator(file_system, run);
  const train::Capacity capacity = train::capacity_of(run);
  train::Programs programs = programs_of_eval();
  programs.evaluation_turns = turns(run.strategy, evaluator.batches());
  programs.transport = transport;
  train::Session session = train::make_session(file_system, run, programs, capacity);
  if (session.world() != nullptr) collectives::agree(*session.world(), {{"data.valid", train::data_digest(evaluator.reader(), run)}});
  if (speaks(transport) && !options.run.json) show_waterline(session.plan(), train::kEvaluate, capacity);
  const std::vector<std::string> absent = train::load_weights(stored, session);
  if (speaks(transport)) say_absent(stored.origin(), absent);
  const observe::Evaluation evaluation = evaluator.run(session, clock);
  if (speaks(transport)) print(options, run, stored.origin(), evaluation);
}

}  // namespace

void eval_command(const EvalOptions& options) {
  io::PosixFileSystem file_system;
  const Source source = source_of(file_system, options);
  const train::StoredModel stored = train::StoredModel::open(file_system, source.place, source.run);
  if (train::is_first_process()) say_passed_over(stored.passed_over());
  const std::int64_t ranks = options.run.ranks > 0 ? options.run.ranks : train::ranks_started();
  const base::Bytes data = source.run.strategy_auto ? train::data_to_come(file_system, source.run) : base::Bytes{};
  const config::Run run = train::without_training(source.run, programs_of_eval(), ranks, data);
  train::run_ranks({.run = run, .trains = false, .processes = command_of_ranks(options.processes), .complain = complain_of_ranks},
                   [&](collectives::Transport* transport) { evaluate(options, run, stored, transport); });
}

}  // namespace plimsoll::cli
