#include "train/evaluator.h"

#include <algorithm>

#include "train/setup.h"

namespace plimsoll::train {

Evaluator::Evaluator(io::FileSystem& file_system, const config::Run& run)
    : run_(run), reader_(open_reader(file_system, run, run.data.valid, true)) {}

observe::Evaluation Evaluator::run(Session& session, const observe::Clock& clock) const {
  const double start = clock.seconds();
  const std::int64_t rows = run_.batch.micro;
  const std::int64_t samples = reader_->sampler().samples_per_epoch();
  const std::int64_t all = (samples + rows - 1) / rows;
  const std::int64_t batches = run_.eval.batches > 0 ? std::min(run_.eval.batches, all) : all;
  observe::Evaluation evaluation;
  double loss_sum = 0.0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const data::SampleRange range{batch * rows, std::min(rows, samples - batch * rows)};
    evaluation.tokens += reader_->read(range, batch_view(session, "evaluate", 0, run_));
    loss_sum += session.evaluate();
  }
  evaluation.loss = loss_sum / static_cast<double>(std::max<std::int64_t>(1, evaluation.tokens));
  evaluation.seconds = clock.seconds() - start;
  return evaluation;
}

}  // namespace plimsoll::train
