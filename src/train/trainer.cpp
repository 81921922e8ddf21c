#include "train/trainer.h"

#include <algorithm>

#include "base/error.h"
#include "data/batch_share.h"
#include "train/lr_schedule.h"
#include "train/setup.h"

namespace plimsoll::train {

namespace {

data::BatchView view_of(Session& session, std::string_view program, std::int32_t micro_batch, const config::Run& run) {
  return {.rows = run.batch.micro,
          .sequence = run.batch.sequence,
          .tokens = session.input(program, "tokens", micro_batch),
          .targets = session.input(program, "targets", micro_batch),
          .positions = session.input(program, "positions", micro_batch),
          .segments = session.input(program, "segments", micro_batch),
          .token_types = session.input(program, "token_types", micro_batch),
          .samples = session.input(program, "samples", micro_batch)};
}

Session make_session(const config::Run& run) {
  const SessionOptions options = session_options(run, {.train = true, .evaluate = !run.data.valid.empty(), .infer = {}});
  require_fit(plan_session(options), capacity_of(run));
  return Session(options);
}

}  // namespace

struct Trainer::State {
  State(const config::Run& given, TrainContext where)
      : run(given),
        context(where),
        train_reader(open_reader(where.file_system, given, given.data.train, false)),
        valid_reader(given.data.valid.empty() ? nullptr : open_reader(where.file_system, given, given.data.valid, true)),
        session(make_session(given)) {}

  config::Run run;
  TrainContext context;
  std::shared_ptr<const data::BatchReader> train_reader;
  std::shared_ptr<const data::BatchReader> valid_reader;
  Session session;
  Progress progress;
};

Trainer::Trainer(const config::Run& run, TrainContext context) : state_(std::make_unique<State>(run, context)) {}
Trainer::~Trainer() = default;

Session& Trainer::session() { return state_->session; }
Progress& Trainer::progress() { return state_->progress; }

observe::StepDone Trainer::step(executor::Timeline* timeline) {
  State& state = *state_;
  const config::Run& run = state.run;
  const double start = state.context.clock.seconds();
  const data::BatchShare share{.global = run.batch.global, .micro = run.batch.micro};
  std::int64_t valid_targets = 0;
  for (std::int32_t micro_batch = 0; micro_batch < share.micro_batches(); ++micro_batch) {
    const data::SampleRange range = data::range_of(share, state.progress.cursor, micro_batch);
    valid_targets += state.train_reader->read(range, view_of(state.session, "train", micro_batch, run));
  }
  const std::int64_t number = state.progress.steps_done + 1;
  const double rate = learning_rate(run, number);
  const StepResult result = state.session.step(
      {.learning_rate = static_cast<float>(rate), .step = static_cast<std::uint32_t>(number), .valid_targets = valid_targets}, timeline);
  state.progress.steps_done = number;
  state.progress.cursor += run.batch.global;

  const double seconds = state.context.clock.seconds() - start;
  observe::StepDone done{.step = number, .loss = result.loss, .grad_norm = result.gradient_norm, .lr = rate, .seconds = seconds};
  done.tokens_per_second = static_cast<double>(run.batch.global * run.batch.sequence) / seconds;
  done.peak_bytes.device = state.session.plan().classes.at(0).arena[static_cast<std::size_t>(plan::Tier::device)].count;
  done.skipped = result.skipped;
  if (run.precision == model::Precision::fp16) done.loss_scale = result.loss_scale;
  return done;
}

observe::Evaluation Trainer::evaluate() {
  State& state = *state_;
  PLIMSOLL_CHECK(state.valid_reader != nullptr, "there is no data.valid");
  const config::Run& run = state.run;
  const double start = state.context.clock.seconds();
  const std::int64_t samples = state.valid_reader->sampler().samples_per_epoch();
  const std::int64_t all = (samples + run.batch.micro - 1) / run.batch.micro;
  const std::int64_t batches = run.eval.batches > 0 ? std::min(run.eval.batches, all) : all;
  observe::Evaluation evaluation;
  double loss_sum = 0.0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const data::SampleRange range{batch * run.batch.micro, std::min(run.batch.micro, samples - batch * run.batch.micro)};
    evaluation.tokens += state.valid_reader->read(range, view_of(state.session, "evaluate", 0, run));
    loss_sum += state.session.evaluate();
  }
  evaluation.loss = loss_sum / static_cast<double>(std::max<std::int64_t>(1, evaluation.tokens));
  evaluation.seconds = state.context.clock.seconds() - start;
  return evaluation;
}

void Trainer::run(const Save& save) {
  State& state = *state_;
  const config::Run& run = state.run;
  state.context.observer.on(observe::RunStarted{.first_step = state.progress.steps_done + 1, .last_step = run.steps, .name = describe(run)});
  std::int64_t saved = state.progress.steps_done;
  while (state.progress.steps_done < run.steps && !state.context.stop_wanted.load()) {
    observe::StepDone done = step();
    const bool last = done.step == run.steps;
    const bool evaluates = state.valid_reader != nullptr && run.eval.every > 0 && (last || done.step % run.eval.every == 0);
    if (evaluates) done.evaluation = evaluate();
    state.context.observer.on(done);
    if (run.checkpoint.every > 0 && done.step % run.checkpoint.every == 0 && !last) {
      save(*this);
      saved = done.step;
    }
  }
  if (state.progress.steps_done > saved) save(*this);
  state.context.observer.on(observe::RunEnded{.step = state.progress.steps_done});
}

}  // namespace plimsoll::train
