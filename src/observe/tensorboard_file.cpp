#include "observe/tensorboard_file.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/crc32c.h"

namespace plimsoll::observe {

namespace {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <typename Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFFu));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80u; value >>= 7) out.push_back(static_cast<char>(value | 0x80u));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, std::uint32_t field, WireType type) { put_varint(out, field << 3 | static_cast<std::uint32_t>(type)); }

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, WireType::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_time, std::int64_t step) {
  std::string event;
  put_key(event, 1, WireType::fixed64);
  put_little_endian(event, std::bit_cast<std::uint64_t>(wall_time));
  put_key(event, 2, WireType::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::string summary_value(const Scalar& scalar) {
  std::string value;
  put_bytes(value, 1, scalar.tag);
  put_key(value, 2, WireType::fixed32);
  put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
  return value;
}

std::vector<Scalar> scalars_of(const StepDone& step) {
  std::vector<Scalar> scalars{{"train/loss", step.loss},
                              {"train/grad_norm", step.grad_norm},
                              {"train/lr", step.lr},
                              {"speed/step_seconds", step.seconds},
                              {"speed/tokens_per_second", step.tokens_per_second}};
  const auto add_tier = [&](const char* tag, const std::optional<std::int64_t>& bytes) {
    if (bytes) scalars.push_back({tag, static_cast<double>(*bytes)});
  };
  add_tier("memory/device_peak_bytes", step.peak_bytes.device);
  add_tier("memory/host_peak_bytes", step.peak_bytes.host);
  add_tier("memory/disk_peak_bytes", step.peak_bytes.disk);
  if (step.loss_scale) {
    scalars.push_back({"train/loss_scale", *step.loss_scale});
    scalars.push_back({"train/skipped", step.skipped ? 1.0 : 0.0});
  }
  if (step.evaluation) {
    scalars.push_back({"eval/loss", step.evaluation->loss});
    scalars.push_back({"eval/perplexity", std::exp(step.evaluation->loss)});
  }
  return scalars;
}

}  // namespace

std::string event_file_name(double unix_seconds, std::string_view host) {
  return fmt::format("events.out.tfevents.{:010d}.{}", static_cast<std::int64_t>(unix_seconds), host);
}

TensorboardFile::TensorboardFile(Sink sink, const Clock& clock) : sink_(std::move(sink)), clock_(clock) {
  std::string event = event_at(clock_.unix_seconds(), 0);
  put_bytes(event, 3, "brain.Event:2");
  write_record(event);
}

void TensorboardFile::write(std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) put_bytes(summary, 1, summary_value(scalar));
  std::string event = event_at(clock_.unix_seconds(), step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void TensorboardFile::on(const Event& event) {
  if (const auto* step = std::get_if<StepDone>(&event)) write(step->step, scalars_of(*step));
}

void TensorboardFile::write_record(std::string_view event) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(event.size()));
  put_little_endian(record, base::masked_crc32c(record));
  record += event;
  put_little_endian(record, base::masked_crc32c(event));
  sink_(record);
}

}  // namespace plimsoll::observe
