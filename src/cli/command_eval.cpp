// `plimsoll eval`: the loss over data.valid, all of it unless told otherwise.
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "io/posix_file_system.h"
#include "train/evaluator.h"
#include "train/setup/setup.h"
#include "train/stored/stored_model.h"

namespace plimsoll::cli {

namespace {

// A model folder says no more than how long a sequence may be at most.
constexpr std::int64_t kUsualSequence = 1024;

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

}  // namespace

void eval_command(const EvalOptions& options) {
  io::PosixFileSystem file_system;
  const Source source = source_of(file_system, options);
  const config::Run& run = source.run;
  const observe::SystemClock clock;
  const train::StoredModel stored = train::StoredModel::open(file_system, source.place, run);
  say_passed_over(stored.passed_over());
  train::Session session(train::session_options(run, {.train = false, .evaluate = true, .draw_parameters = false}));
  say_absent(stored.origin(), train::load_weights(stored, session));
  const train::Evaluator evaluator(file_system, run);
  const observe::Evaluation evaluation = evaluator.run(session, clock);
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(base::Json::object({{"loss", evaluation.loss},
                                                            {"perplexity", std::exp(evaluation.loss)},
                                                            {"tokens", evaluation.tokens},
                                                            {"sequences", evaluation.sequences},
                                                            {"all_sequences", evaluation.all},
                                                            {"sequence", run.batch.sequence},
                                                            {"model", stored.origin()}})));
    return;
  }
  const std::string covered = evaluation.sequences == evaluation.all
                                  ? fmt::format("all {} sequences", evaluation.all)
                                  : fmt::format("the first {} of {} sequences", evaluation.sequences, evaluation.all);
  fmt::print("loss {:.4f}  perplexity {:.3f}  over {} tokens: {} of {} in data.valid, of {}\n", evaluation.loss, std::exp(evaluation.loss),
             evaluation.tokens, covered, run.batch.sequence, stored.origin());
}

}  // namespace plimsoll::cli
