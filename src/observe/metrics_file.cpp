#include "observe/metrics_file.h"

#include "base/error.h"
#include "base/json.h"

namespace plimsoll::observe {

std::string metrics_line(const StepDone& step) {
  base::Json peak = base::Json::object();
  if (step.peak_bytes.device) peak.set("device", *step.peak_bytes.device);
  if (step.peak_bytes.host) peak.set("host", *step.peak_bytes.host);
  if (step.peak_bytes.disk) peak.set("disk", *step.peak_bytes.disk);
  base::Json line = base::Json::object({{"step", step.step},
                                        {"loss", step.loss},
                                        {"grad_norm", step.grad_norm},
                                        {"lr", step.lr},
                                        {"seconds", step.seconds},
                                        {"tokens_per_second", step.tokens_per_second},
                                        {"peak_bytes", std::move(peak)}});
  if (step.device) {
    line.set("device",
             base::Json::object(
                 {{"memory_bytes", step.device->memory_bytes}, {"watts", step.device->watts}, {"megahertz", step.device->megahertz}}));
  }
  if (step.loss_scale) line.set("loss_scale", *step.loss_scale);
  if (step.skipped) line.set("skipped", true);
  if (step.evaluation) {
    line.set("eval_loss", step.evaluation->loss);
    line.set("eval_tokens", step.evaluation->tokens);
    line.set("eval_seconds", step.evaluation->seconds);
  }
  return base::write_json(line) + "\n";
}

void MetricsFile::on(const Event& event) {
  if (const auto* step = std::get_if<StepDone>(&event)) sink_(metrics_line(*step));
}

namespace {

// The step of a line, or nothing for a line that is not whole.
std::optional<std::int64_t> step_of(std::string_view line) {
  try {
    const base::Json parsed = base::parse_json(line, "metrics.jsonl", {.strict = true});
    const base::Json* step = parsed.is_object() ? parsed.find("step") : nullptr;
    if (step != nullptr && step->is_integer()) return step->as_integer();
  } catch (const base::Error&) {  // torn
  }
  return std::nullopt;
}

}  // namespace

std::string_view metrics_through(std::string_view text, std::int64_t step) {
  std::size_t kept = 0;
  while (kept < text.size()) {
    const std::size_t newline = text.find('\n', kept);
    if (newline == std::string_view::npos) break;
    const auto found = step_of(text.substr(kept, newline - kept));
    if (!found || *found > step) break;
    kept = newline + 1;
  }
  return text.substr(0, kept);
}

}  // namespace plimsoll::observe
