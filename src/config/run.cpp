#include "config/run.h"

#include "base/error.h"
#include "config/choices.h"

namespace plimsoll::config {

const Origin& Run::origin(std::string_view key) const {
  static const Origin none;
  const auto found = origins.find(key);
  return found == origins.end() ? none : found->second;
}

bool Run::given(std::string_view key) const {
  const OriginKind kind = origin(key).kind;
  return kind == OriginKind::file || kind == OriginKind::set || kind == OriginKind::deepspeed;
}

std::string Run::where(std::string_view key) const { return given(key) ? origin(key).text : name; }

model::Training Run::training() const {
  return {.optimizer = optimizer,
          .precision = precision,
          .loss_scaling = loss_scale,
          .micro_batch = {.samples = batch.micro, .sequence = batch.sequence},
          .amax_history = amax_history,
          .accumulates = micro_batches() > 1,
          .segmented = false,
          .freeze = freeze,
          .freeze_as = freeze_as};
}

std::string_view name_of(model::Precision precision) { return choice_name(precision); }

model::Precision precision_named(std::string_view name) {
  for (const auto& choice : Choices<model::Precision>::kTable) {
    if (choice.name == name) return choice.value;
  }
  base::bad_input("found the precision \"{}\", which is none", name);
}

std::string_view name_of(Device device) { return choice_name(device); }
std::string_view name_of(Transport transport) { return choice_name(transport); }
std::string_view name_of(LrScheduleType type) { return choice_name(type); }

}  // namespace plimsoll::config
