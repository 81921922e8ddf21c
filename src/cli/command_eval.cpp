#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "io/posix_file_system.h"
#include "train/evaluator.h"
#include "train/setup.h"
#include "train/stored_model.h"

namespace plimsoll::cli {

void eval_command(const RunOptions& options) {
  io::PosixFileSystem file_system;
  const config::Run run = read_run(file_system, options);
  if (run.data.valid.empty()) base::bad_input("{}: found no \"data.valid\"; expected the text or token file to evaluate on", run.name);
  const observe::SystemClock clock;
  const train::StoredModel stored = train::StoredModel::open(file_system, {.run_file = options.file}, run);
  say_passed_over(stored.passed_over());
  train::Session session(train::session_options(run, {.train = false, .evaluate = true, .draw_parameters = false}));
  say_absent(stored.origin(), train::load_weights(stored, session));
  const train::Evaluator evaluator(file_system, run);
  const observe::Evaluation evaluation = evaluator.run(session, clock);
  if (options.json) {
    fmt::print("{}\n", base::write_json(base::Json::object({{"loss", evaluation.loss},
                                                            {"perplexity", std::exp(evaluation.loss)},
                                                            {"tokens", evaluation.tokens},
                                                            {"model", stored.origin()}})));
  } else {
    fmt::print("loss {:.4f}  perplexity {:.3f}  over {} tokens, of {}\n", evaluation.loss, std::exp(evaluation.loss), evaluation.tokens,
               stored.origin());
  }
}

}  // namespace plimsoll::cli
