#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "collectives/agree.h"
#include "data/batch_share.h"
#include "train/evaluator.h"
#include "train/lr_schedule.h"
#include "train/session/together.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

namespace {

Session training_session(const config::Run& run, const TrainContext& context, const Capacity& capacity) {
  return make_session(context.file_system, run,
                      {.train = true,
                       .evaluate = !run.data.valid.empty(),
                       .draw_parameters = run.model_path.empty(),
                       .transport = context.transport,
                       .schedule = schedule_of(context.file_system, run)},
                      capacity);
}

std::optional<Evaluator> evaluator_of(const config::Run& run, const TrainContext& context) {
  if (run.data.valid.empty()) return std::nullopt;
  return std::optional<Evaluator>(std::in_place, context.file_system, run);
}

}  // namespace

struct Trainer::State {
  State(const config::Run& given, TrainContext where)
      : run(given),
        context(where),
        train_reader(open_reader(where.file_system, given, given.data.train, false)),
        data_digest(train::data_digest(*train_reader, given)),
        evaluator(evaluator_of(given, where)),
        capacity(capacity_of(given)),
        session(training_session(given, where, capacity)) {
    // Ranks read their own copies of the data: all must hold the same, or they train on different samples.
    if (session.world() == nullptr) return;
    std::vector<collectives::Field> fields{{"data.train", data_digest}};
    if (evaluator) fields.push_back({"data.valid", train::data_digest(evaluator->reader(), given)});
    collectives::agree(*session.world(), fields);
  }

  // Counts the step, and says what it did.
  observe::StepDone done(const StepResult& result, double seconds) {
    const std::int64_t number = ++progress.steps_done;
    progress.cursor += run.batch.global;
    observe::StepDone done{
        .step = number, .loss = result.loss, .grad_norm = result.gradient_norm, .lr = learning_rate(run, number), .seconds = seconds};
    done.tokens_per_second = static_cast<double>(run.batch.global * run.batch.sequence) / seconds;
    const auto& arenas = plan::fullest_class(session.plan()).arena;  // of the rank that `plan` shows
    done.peak_bytes.device = arenas[static_cast<std::size_t>(plan::Tier::device)].count;
    if (const base::Bytes host = arenas[static_cast<std::size_t>(plan::Tier::host)]; host.count > 0) done.peak_bytes.host = host.count;
    if (const base::Bytes disk = arenas[static_cast<std::size_t>(plan::Tier::disk)]; disk.count > 0) done.peak_bytes.disk = disk.count;
    if (const auto reading = session.executor().reading())
      done.device = {.memory_bytes = reading->memory.count, .watts = reading->watts, .megahertz = reading->megahertz};
    done.skipped = result.skipped;
    if (run.precision == model::Precision::fp16) done.loss_scale = result.loss_scale;
    return done;
  }

  // Where there is a verdict, a step whose gradient is not finite changes nothing, and a few in a row are one bad batch or another; more
  // are weights that will not recover. Where there is none, the update has spoilt them. fp16 finds its scale by such steps.
  void require_finite(const observe::StepDone& step, std::int64_t saved) {
    const bool finds_scale = run.precision == model::Precision::fp16 && step.skipped && std::isfinite(step.loss) &&
                             step.loss_scale > static_cast<double>(run.loss_scale.minimum);
    if (std::isfinite(step.loss) && (std::isfinite(step.grad_norm) || finds_scale)) {
      not_finite = 0;
      return;
    }
    if (++not_finite < run.not_finite_limit && step.skipped) return;
    const std::string past =
        step.skipped ? fmt::format("the {} steps up to it changed nothing", not_finite) : "its update has spoilt the weights";
    throw base::Error(base::ErrorKind::other,
                      fmt::format("step {}: found a loss of {} and a gradient norm of {}, expected finite ones{}; {}, and {}; {}",
                                  step.step, step.loss, step.grad_norm, culprit, past, what_is_kept(saved), kRemedy));
  }

  // What may be spoilt is not worth the place of an older checkpoint, at the end of a run as little as on the way.
  void require_finite_end(std::int64_t saved) const {
    if (not_finite == 0) return;
    throw base::Error(
        base::ErrorKind::other,
        fmt::format("the run ended with {} step{} up to step {} whose loss or gradient norm is not finite; what they left is not "
                    "saved, and {}; {}",
                    not_finite, not_finite == 1 ? "" : "s", progress.steps_done, what_is_kept(saved), kRemedy));
  }

  static constexpr std::string_view kRemedy = "try a smaller \"optimizer.lr\", \"optimizer.clip\", or f32";
  static std::string what_is_kept(std::int64_t saved) {
    return saved == 0 ? "nothing was saved" : fmt::format("the run can go on from the checkpoint of step {}", saved);
  }

  // The last step before a run would stop is looked into: the ones before it have changed nothing, so it does what they did.
  bool looks() const { return not_finite > 0 && not_finite + 1 >= run.not_finite_limit; }

  // Names what is not finite where it came up, on all ranks alike.
  void look_into(const executor::Timeline& timeline) {
    culprit.clear();
    if (!timeline.looks) return;
    const std::string own = timeline.not_finite ? (timeline.not_finite->brought_in ? "?" : "!") + timeline.not_finite->text : "";
    const std::vector<std::string> everybodys = tell_all(session.world(), own);
    for (const char mark : {'!', '?'}) {
      for (std::size_t rank = 0; culprit.empty() && rank < everybodys.size(); ++rank) {
        if (everybodys[rank].starts_with(mark)) culprit = fmt::format("; rank {} met it first: {}", rank, everybodys[rank].substr(1));
      }
    }
  }

  config::Run run;
  TrainContext context;
  std::string culprit;          // a clause that names it
  std::int64_t not_finite = 0;  // steps in a row
  std::shared_ptr<const data::BatchReader> train_reader;
  std::string data_digest;
  std::optional<Evaluator> evaluator;
  Capacity capacity;
  Session session;
  Progress progress;
};

Trainer::Trainer(const config::Run& run, TrainContext context) : state_(std::make_unique<State>(run, context)) {}
Trainer::~Trainer() = default;

Session& Trainer::session() { return state_->session; }
const Capacity& Trainer::capacity() const { return state_->capacity; }
Progress& Trainer::progress() { return state_->progress; }
const Progress& Trainer::progress() const { return state_->progress; }
const data::BatchReader& Trainer::train_data() const { return *state_->train_reader; }
const std::string& Trainer::data_digest() const { return state_->data_digest; }

std::vector<observe::StepDone> Trainer::round(executor::Timeline* timeline) {
  State& state = *state_;
  const config::Run& run = state.run;
  const double start = state.context.clock.seconds();
  const plan::Mesh& mesh = state.session.plan().mesh;
  // Where stages have degrees of their own, all ranks go through all micro-batches, and each keeps what its program reads.
  data::BatchShare share{.global = run.batch.global, .micro = run.batch.micro};
  if (mesh.even()) {
    share.ranks = mesh.extent(ops::Shares::batch, state.session.rank());
    share.rank = mesh.place(ops::Shares::batch, state.session.rank());
  }
  std::vector<StepInputs> inputs;
  for (std::int64_t step = 0; step < run.strategy.flush_every; ++step) {
    std::int64_t valid_targets = 0;
    for (std::int32_t micro_batch = 0; micro_batch < share.micro_batches(); ++micro_batch) {
      const data::SampleRange range = data::range_of(share, state.progress.cursor + step * run.batch.global, micro_batch);
      const auto number = static_cast<std::int32_t>(step * share.micro_batches()) + micro_batch;
      valid_targets += state.train_reader->read(range, batch_view(state.session, kTrain, number, run));
    }
    if (mesh.even()) {
      const std::vector<std::int64_t> everybodys = tell_all(state.session.data_group(), valid_targets);
      valid_targets = std::accumulate(everybodys.begin(), everybodys.end(), std::int64_t{0});
    }
    const std::int64_t number = state.progress.steps_done + step + 1;
    inputs.push_back({.learning_rate = static_cast<float>(learning_rate(run, number)),
                      .step = static_cast<std::uint32_t>(number),
                      .valid_targets = valid_targets});
  }
  const std::vector<StepResult> results = state.session.steps(inputs, timeline);
  const double seconds = (state.context.clock.seconds() - start) / static_cast<double>(results.size());
  std::vector<observe::StepDone> round;
  for (const StepResult& result : results) round.push_back(state.done(result, seconds));
  return round;
}

namespace {

// The checkpoint that an error names must be whole: what is written beside training is waited for before the error goes on.
template <typename Check>
void settled(Trainer& trainer, const Trainer::Hooks& hooks, Check check) {
  try {
    check();
  } catch (const base::Error&) {
    if (hooks.settle) hooks.settle(trainer);
    throw;
  }
}

}  // namespace

void Trainer::run(const Hooks& hooks) {
  State& state = *state_;
  const config::Run& run = state.run;
  state.context.observer.on(
      observe::RunStarted{.first_step = state.progress.steps_done + 1, .last_step = run.steps, .name = describe(run)});
  const std::int64_t first = state.progress.steps_done;
  std::int64_t saved = first;
  // A signal reaches ranks at different moments, and they must stop after the same step.
  const auto stop_wanted = [&] {
    const std::vector<std::int64_t> wishes = tell_all(state.session.world(), state.context.stop_wanted.load() ? 1 : 0);
    const bool far_enough = hooks.until > 0 && state.progress.steps_done >= hooks.until;
    return far_enough || std::any_of(wishes.begin(), wishes.end(), [](std::int64_t wish) { return wish != 0; });
  };
  bool stopping = stop_wanted();
  while (state.progress.steps_done < run.steps && !stopping) {
    const std::int64_t round_number = (state.progress.steps_done - first) / run.strategy.flush_every + 1;
    const bool only = round_number == 1 && state.progress.steps_done + run.strategy.flush_every == run.steps;
    executor::Timeline look{.events = {}, .looks = state.looks()};
    std::vector<observe::StepDone> steps = round(look.looks ? &look : round_number == 2 || only ? hooks.timeline : nullptr);
    state.look_into(look);
    observe::StepDone& done = steps.back();
    const bool last = done.step == run.steps;
    const bool evaluates = state.evaluator && run.eval.every > 0 && (last || done.step % run.eval.every == 0);
    if (evaluates) done.evaluation = state.evaluator->run(state.session, state.context.clock);
    for (const observe::StepDone& step : steps) state.context.observer.on(step);
    settled(*this, hooks, [&] {
      for (const observe::StepDone& step : steps) state.require_finite(step, saved);
    });
    stopping = stop_wanted();
    if (stopping) break;
    if (hooks.poll) hooks.poll(*this);
    // What may be spoilt is not worth the place of an older one.
    if (run.checkpoint.every > 0 && done.step % run.checkpoint.every == 0 && !last && state.not_finite == 0) {
      hooks.save(*this);
      saved = done.step;
    }
  }
  settled(*this, hooks, [&] { state.require_finite_end(saved); });
  if (state.progress.steps_done > saved) {
    if (stopping && hooks.drop) hooks.drop(*this);
    hooks.save(*this);
  }
  if (hooks.settle) hooks.settle(*this);
  state.context.observer.on(observe::RunEnded{.step = state.progress.steps_done});
}

}  // namespace plimsoll::train
