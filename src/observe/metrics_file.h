// metrics.jsonl: one JSON object per step and line. The keys step, loss, grad_norm, lr, seconds, tokens_per_second and
// peak_bytes (an object by tier) are a promise to scripts and are in every line; loss_scale, skipped, eval_loss,
// eval_tokens and eval_seconds are there when they apply. A value that is not finite is null.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "observe/event.h"
#include "observe/sink.h"

namespace plimsoll::observe {

std::string metrics_line(const StepDone& step);  // ends with a newline

class MetricsFile final : public Observer {
 public:
  explicit MetricsFile(Sink sink) : sink_(std::move(sink)) {}
  void on(const Event& event) override;

 private:
  Sink sink_;
};

// The part of an existing metrics file that a run resumed after `step` continues: whole lines of steps up to it. What
// was written after the checkpoint that is resumed from will be written again, and a line torn by a crash is dropped.
std::string_view metrics_through(std::string_view text, std::int64_t step);

}  // namespace plimsoll::observe
