// bf16: what is wider is rounded to nearest even on the way. Ranks that sum do so in f32 and round once (collectives/fold.h).
#include "codecs/builder.h"
#include "codecs/table.h"

namespace plimsoll::codecs {

namespace {

using base::DType;

bool is_wider(DType dtype) { return base::size_of(dtype) > base::size_of(DType::bf16); }

std::string exact(const Ask& ask) { return is_wider(ask.type.dtype) ? "" : "its elements have two bytes already"; }

std::int64_t wire_bytes(const Ask& ask) {
  Ask narrow = ask;
  narrow.type.dtype = DType::bf16;
  return plain_bytes(narrow);
}

Flight widen(Builder& build, const Task& task, const std::vector<ValueId>& values) {
  std::vector<ValueId> wide;
  for (std::size_t index = 0; index < values.size(); ++index) {
    const Operand& operand = task.operands[index];
    wide.push_back(build.cast(task, values[index], operand.type.dtype, operand.name));
  }
  return {.values = wide};
}

Flight send(Builder& build, const Task& task) {
  std::vector<ValueId> narrow;
  for (const Operand& operand : task.operands) {
    if (operand.value.valid()) narrow.push_back(build.cast(task, operand.value, DType::bf16, operand.name + ".bf16"));
  }
  if (task.wanted == Wanted::message) {
    ops::Message message = task.message;
    message.dtype = DType::bf16;
    const std::vector<ValueId> came = build.make(task, message, narrow, task.operands[0].name + ".bf16");
    return message.receive ? Flight{came, widen} : Flight{};
  }
  ops::Collective collective = task.plain;
  collective.tensors = static_cast<std::int64_t>(narrow.size());
  return {build.make(task, collective, narrow, task.operands[0].name + ".bf16"), widen};
}

constexpr Codec kRow{.name = "bf16", .about = "rounds f32 to bf16", .emit = send, .wire_bytes = wire_bytes, .exact = exact};

}  // namespace

const Codec& bf16() { return kRow; }

}  // namespace plimsoll::codecs
