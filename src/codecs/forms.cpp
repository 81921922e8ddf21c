// Codecs of stored forms (ops/forms): records of codes with their scale for every block.
//
// Ranks that sum send each other the records of the parts that the others own, add up what came in the order of the ranks and, where all
// are to have the sum, encode it once more and gather that. With error feedback what rounding loses of a gradient is added to the next one,
// by who sends it and by who owns a part of the sum.
#include <array>

#include <fmt/format.h>

#include "codecs/builder.h"
#include "codecs/table.h"
#include "ops/step_scalars.h"

namespace plimsoll::codecs {

namespace {

using base::DType;
using base::Shape;

constexpr std::array kNumbers{Number{.name = "error_feedback",
                                     .about = "Whether what is lost of a gradient is added to the next one.",
                                     .usual = 1.0,
                                     .flag = true,
                                     .gradients_alone = true}};

bool feeds_back(const Numbers& numbers) { return numbers[0] != 0.0; }

const ops::FormInfo& form_of(const Choice& choice) { return *choice.codec->form; }

// ---- what is asked before

// Shared out flat, a tensor is filled up to parts that are multiples of kSumBlock elements.
Shape padded_rows(const Ask& ask) {
  const Shape& shape = ask.type.shape;
  if (shape.rank() > 1 || ask.wanted == Wanted::message) return {shape.rows(), shape[-1]};
  const std::int64_t unit = ask.members * ops::kSumBlock;
  return {ask.members, (shape.elements() + unit - 1) / unit * ops::kSumBlock};
}

std::int64_t bytes_on_wire(const Ask& ask) {
  const Shape rows = padded_rows(ask);
  const std::int64_t row = form_of(ask.choice).bytes(rows[1]);
  if (ask.wanted == Wanted::message) return rows[0] * row;
  const std::int64_t own = rows[0] / ask.members + (rows[0] % ask.members > 0 ? 1 : 0);
  const std::int64_t to_others = (ask.members - 1) * own * row;
  return ask.wanted == Wanted::sum ? 2 * to_others : to_others;
}

std::string exact_where(const Ask& ask) {
  const Shape& shape = ask.type.shape;
  const bool sums = ask.wanted == Wanted::sum || ask.wanted == Wanted::shard;
  if (shape.rank() > 1 && sums && shape.rows() % ask.members != 0)
    return fmt::format("its {} rows cannot be dealt evenly to {} ranks", shape.rows(), ask.members);
  if (shape.rank() == 1 && shape.elements() < ask.members * ops::kSumBlock)
    return fmt::format("it has {} elements, less than {} for each of {} ranks", shape.elements(), ops::kSumBlock, ask.members);
  if (bytes_on_wire(ask) >= plain_bytes(ask)) return fmt::format("its {} bytes would become {}", plain_bytes(ask), bytes_on_wire(ask));
  return "";
}

// ---- pieces

ValueId decoded(Builder& build, const Task& task, ValueId records, std::int64_t columns, DType dtype, const std::string& name) {
  return build.make_one(task, ops::Decode{.form = &form_of(task.choice), .columns = columns, .dtype = dtype}, {records}, name);
}

// The records of a tensor in rows. With an error, of the sum with it, and what they lose is kept.
ValueId encoded(Builder& build, const Task& task, ValueId x, const Shape& rows, ValueId error, const std::string& name) {
  const Feedback feedback(build, task, error, name);
  if (error.valid()) x = feedback.added(x);
  const ValueId z = build.shaped(task, x, rows, name + ".rows");
  const ValueId records = build.make_one(task, ops::Encode{.form = &form_of(task.choice)}, {z}, name + ".codes");
  if (error.valid()) feedback.keep(z, decoded(build, task, records, rows[1], DType::f32, name + ".sent"));
  return records;
}

ValueId flat(Builder& build, const Task& task, ValueId value, const std::string& name) {
  return build.shaped(task, value, {build.type(value).shape.elements()}, name);
}

// The elements of records that came in rows, shaped as the operand is to be.
ValueId read(Builder& build, const Task& task, ValueId came, std::int64_t columns, const Operand& operand) {
  const std::int64_t bytes = form_of(task.choice).bytes(columns);
  const Shape rows{build.type(came).shape.elements() / bytes, bytes};
  const ValueId records = build.shaped(task, came, rows, operand.name + ".records");
  return build.shaped(task, decoded(build, task, records, columns, operand.type.dtype, operand.name), operand.type.shape, operand.name);
}

bool keeps_errors(const Task& task, const Operand& operand) { return feeds_back(task.choice.numbers) && operand.like.valid(); }

// ---- sums, the last step first

Shape rows_of_sum(const Task& task, const Operand& operand) {
  return operand.shard > 0 ? Shape{task.plain.members, operand.shard} : operand.whole;
}

Flight read_sums(Builder& build, const Task& task, const std::vector<ValueId>& gathered) {
  std::vector<ValueId> made;
  for (std::size_t index = 0; index < gathered.size(); ++index) {
    const Operand& operand = task.operands[index];
    made.push_back(read(build, task, gathered[index], rows_of_sum(task, operand)[1], operand));
  }
  return {made};
}

Flight send_to_all(Builder& build, const Task& task, const std::vector<ValueId>& sums) {
  std::vector<ValueId> records;
  for (std::size_t index = 0; index < sums.size(); ++index) {
    const Operand& operand = task.operands[index];
    const Shape rows = rows_of_sum(task, operand);
    const ValueId error = keeps_errors(task, operand) ? build.shard_state(task, operand, "sum_error") : ValueId{};
    const Shape own{rows[0] / task.plain.members, rows[1]};
    const ValueId codes = encoded(build, task, sums[index], own, error, operand.name + ".own");
    records.push_back(flat(build, task, codes, operand.name + ".own.flat"));
  }
  return {build.collective(task, ops::CollectiveKind::all_gather, records, task.operands[0].name + ".gathered"), read_sums};
}

Flight add_up(Builder& build, const Task& task, const std::vector<ValueId>& came) {
  const bool last = task.wanted == Wanted::shard;
  std::vector<ValueId> made;
  for (std::size_t index = 0; index < came.size(); ++index) {
    const Operand& operand = task.operands[index];
    const ValueId parts = decoded(build, task, came[index], rows_of_sum(task, operand)[1], DType::f32, operand.name + ".came");
    const ops::SumParts sum{.members = task.plain.members, .dtype = last ? operand.type.dtype : DType::f32};
    const ValueId own = build.make_one(task, sum, {parts}, operand.name);
    made.push_back(last ? build.shaped(task, own, operand.type.shape, operand.name) : own);
  }
  return last ? Flight{made} : send_to_all(build, task, made);
}

Flight send_to_owners(Builder& build, const Task& task) {
  std::vector<ValueId> records;
  for (const Operand& operand : task.operands) {
    const ValueId error = keeps_errors(task, operand) ? build.own_state(task, operand, "error") : ValueId{};
    const Shape rows = rows_of_sum(task, operand);
    const ValueId parts = build.shaped(task, operand.value, rows, operand.name + ".parts");
    records.push_back(encoded(build, task, parts, rows, error, operand.name));
  }
  return {build.collective(task, ops::CollectiveKind::all_to_all, records, task.operands[0].name + ".dealt"), add_up};
}

// ---- parts of all

Shape rows_of_part(const Operand& operand, const Shape& shape) {
  return operand.shard > 0 ? Shape{1, operand.shard} : Shape{shape.rows(), shape[-1]};
}

Flight read_parts(Builder& build, const Task& task, const std::vector<ValueId>& gathered) {
  std::vector<ValueId> made;
  for (std::size_t index = 0; index < gathered.size(); ++index) {
    const Operand& operand = task.operands[index];
    made.push_back(read(build, task, gathered[index], rows_of_part(operand, operand.type.shape)[1], operand));
  }
  return {made};
}

Flight send_parts(Builder& build, const Task& task) {
  std::vector<ValueId> records;
  for (const Operand& operand : task.operands) {
    const Shape rows = rows_of_part(operand, build.type(operand.value).shape);
    const ValueId codes = encoded(build, task, operand.value, rows, {}, operand.name);
    records.push_back(task.plain.rows > 0 ? codes : flat(build, task, codes, operand.name + ".flat"));
  }
  ops::Collective gather = task.plain;
  gather.tensors = std::ssize(records);
  gather.in_place = false;
  return {build.make(task, gather, records, task.operands[0].name + ".gathered"), read_parts};
}

// ---- messages

Flight read_message(Builder& build, const Task& task, const std::vector<ValueId>& came) {
  const Operand& operand = task.operands[0];
  return {{read(build, task, came[0], operand.type.shape[-1], operand)}};
}

Flight send_message(Builder& build, const Task& task) {
  const Operand& operand = task.operands[0];
  const Shape rows{operand.type.shape.rows(), operand.type.shape[-1]};
  ops::Message message = task.message;
  message.dtype = DType::u8;
  message.first = 0;
  message.shape = {rows[0], form_of(task.choice).bytes(rows[1])};
  if (message.receive) return {build.make(task, message, {}, operand.name + ".codes"), read_message};
  build.make(task, message, {encoded(build, task, operand.value, rows, {}, operand.name)}, operand.name + ".sent");
  return {};
}

Flight emit_form(Builder& build, const Task& task) {
  if (task.wanted == Wanted::message) return send_message(build, task);
  return task.wanted == Wanted::gather ? send_parts(build, task) : send_to_owners(build, task);
}

}  // namespace

Codec form_codec(const ops::FormInfo& form, std::string_view about) {
  return {.name = form.name,
          .about = about,
          .numbers = kNumbers,
          .emit = emit_form,
          .wire_bytes = bytes_on_wire,
          .exact = exact_where,
          .remembers = feeds_back,
          .form = &form};
}

}  // namespace plimsoll::codecs
