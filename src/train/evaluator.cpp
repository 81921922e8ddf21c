#include "train/evaluator.h"

#include <algorithm>
#include <numeric>

#include "train/session/together.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

namespace {

// A rank for which no batch is left takes part with one in which nothing counts.
void leave_empty(const data::BatchView& view) {
  for (const std::span<std::int32_t> input : {view.tokens, view.positions, view.segments, view.token_types, view.samples})
    std::fill(input.begin(), input.end(), 0);
  std::fill(view.targets.begin(), view.targets.end(), -1);
}

}  // namespace

Evaluator::Evaluator(io::FileSystem& file_system, const config::Run& run)
    : run_(run), reader_(open_reader(file_system, run, run.data.valid, true)) {}

std::int64_t Evaluator::sequences() const {
  const std::int64_t all = reader_->sampler().samples_per_epoch();
  // The same samples however a batch is divided.
  const std::int64_t global = run_.batch.global;
  return run_.eval.batches > 0 ? std::min(std::min(run_.eval.batches, all / global + 1) * global, all) : all;
}

std::int64_t Evaluator::batches() const { return (sequences() + run_.batch.micro - 1) / run_.batch.micro; }

observe::Evaluation Evaluator::run(Session& session, const observe::Clock& clock) const {
  const double start = clock.seconds();
  const std::int64_t rows = run_.batch.micro;
  const std::int64_t samples = sequences();
  const std::int64_t batches = this->batches();
  observe::Evaluation evaluation{.sequences = samples, .all = reader_->sampler().samples_per_epoch()};
  // Batches are dealt to the data ranks in turn; the sum that evaluate() gives is over all of them. Where stages have degrees of their
  // own, the program runs rounds of batches, of which every rank keeps what its program reads.
  const plan::Mesh& mesh = session.plan().mesh;
  const std::int64_t ranks = mesh.even() ? mesh.extent(ops::Shares::batch, session.rank()) : 1;
  const std::int64_t place = mesh.even() ? mesh.place(ops::Shares::batch, session.rank()) : 0;
  const std::int64_t in_program = plan::find_program(session.executor().rank_class(), kEvaluate)->micro_batches;
  double loss_sum = 0.0;
  for (std::int64_t first = 0; first < batches; first += ranks * in_program) {
    for (std::int64_t micro_batch = 0; micro_batch < in_program; ++micro_batch) {
      const std::int64_t batch = first + micro_batch * ranks + place;
      const data::BatchView view = batch_view(session, kEvaluate, static_cast<std::int32_t>(micro_batch), run_);
      if (batch < batches) {
        evaluation.tokens += reader_->read({batch * rows, std::min(rows, samples - batch * rows)}, view);
      } else {
        leave_empty(view);
      }
    }
    loss_sum += session.evaluate();
  }
  if (mesh.even()) {
    const std::vector<std::int64_t> tokens = tell_all(session.data_group(), evaluation.tokens);
    evaluation.tokens = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  }
  evaluation.loss = loss_sum / static_cast<double>(std::max<std::int64_t>(1, evaluation.tokens));
  evaluation.seconds = clock.seconds() - start;
  return evaluation;
}

}  // namespace plimsoll::train
