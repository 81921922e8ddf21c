// The fields of "communication": codecs by name, or as objects with their settings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "codecs/table.h"
#include "config/fields.h"

namespace plimsoll::config {

namespace {

using codecs::Choice;
using codecs::Use;

// A setting of the codec, a member of the object.
void read_number(const base::Json& object, const base::JsonMember& member, std::string_view key, Choice& choice, Use use) {
  for (std::size_t index = 0; index < choice.codec->numbers.size(); ++index) {
    const codecs::Number& number = choice.codec->numbers[index];
    if (number.name != member.key) continue;
    const std::string name = fmt::format("{}.{}", key, number.name);
    if (number.flag ? !member.value.is_bool() : !member.value.is_number())
      fail_value(member.value, name, number.flag ? "true or false" : "a number");
    const double value = number.flag ? (member.value.as_bool() ? 1.0 : 0.0) : member.value.as_double();
    if (!between(number.least, number.most).contains(value))
      fail_value(member.value, name, expects_number(between(number.least, number.most)));
    if (number.gradients_alone && use != Use::gradients && value != 0.0)
      fail_value(member.value, name, "nothing but false, since it is for gradients alone");
    choice.numbers[index] = value;
    return;
  }
  std::vector<std::string_view> names{"codec"};
  for (const codecs::Number& number : choice.codec->numbers) names.push_back(number.name);
  base::bad_input("{}: found the setting \"{}\" of the codec \"{}\" in \"{}\", expected one of {}", object.where_key(member), member.key,
                  choice.codec->name, key, fmt::join(names, ", "));
}

bool read_choice(const base::Json& value, std::string_view key, Choice& choice, Use use) {
  const base::Json* name = value.is_object() ? value.find("codec") : &value;
  if (name == nullptr || !name->is_string()) return false;
  choice = {};
  if (name->as_string() == "none") return !value.is_object() || value.as_object().size() == 1;
  const codecs::Codec* codec = codecs::find_codec(name->as_string());
  if (codec == nullptr) return false;
  choice = choice_of(*codec, use);
  if (!value.is_object()) return true;
  for (const base::JsonMember& member : value.as_object()) {
    if (member.key != "codec") read_number(value, member, key, choice, use);
  }
  return true;
}

base::Json choice_to_json(const Choice& choice, Use use) {
  if (!choice.any()) return "none";
  const Choice usual = choice_of(*choice.codec, use);
  if (choice == usual) return std::string(choice.codec->name);
  base::Json object = base::Json::object({{"codec", std::string(choice.codec->name)}});
  for (std::size_t index = 0; index < choice.codec->numbers.size(); ++index) {
    const codecs::Number& number = choice.codec->numbers[index];
    if (choice.numbers[index] == usual.numbers[index]) continue;
    object.set(std::string(number.name), number.flag ? base::Json(choice.numbers[index] != 0.0) : base::Json(choice.numbers[index]));
  }
  return object;
}

Field codec_field(Use use, std::string about) {
  Field field{.key = std::string(key_of(use)), .about = std::move(about), .choices = {"none"}};
  for (const codecs::Codec* codec : codecs::codecs()) field.choices.emplace_back(codec->name);
  field.expects =
      fmt::format("{}, or one with its settings such as {{\"codec\": \"int8\", \"error_feedback\": false}}", expects_choice(field.choices));
  field.read = [use](const base::Json& value, Run& run) {
    return read_choice(value, key_of(use), choice_for(run.strategy.communication, use), use);
  };
  field.write = [use](const Run& run) { return choice_to_json(choice_for(run.strategy.communication, use), use); };
  return field;
}

}  // namespace

std::vector<Field> communication_fields() {
  return {
      codec_field(
          Use::gradients,
          "What data ranks send of gradients: f32 rounded to bf16, or codes in blocks of 64 with a scale each, by default with what "
          "rounding loses added to the next gradient (`error_feedback`)."),
      codec_field(Use::weights, "What `data` ranks send of the weights that ZeRO 3 gathers."),
      codec_field(Use::activations,
                  "What `tensor` ranks and stages of a pipeline send of activations and their gradients, rounded without feedback."),
      choice_field(
          "communication.sums", PLIMSOLL_AT(communication.sums),
          "In which order NCCL's ranks add: its own, or `canonical`, by rank as threads, processes and MPI always do: the same bits "
          "as theirs, for more memory traffic."),
  };
}

}  // namespace plimsoll::config
