#include "codecs/table.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "codecs/builder.h"

namespace plimsoll::codecs {

std::span<const Codec* const> codecs() {
  static const Codec fp8 = form_codec(ops::form_named("fp8"), "8-bit floats, blocks of 64 with a scale");
  static const Codec int8 = form_codec(ops::form_named("int8"), "8-bit integers, blocks of 64 with a scale");
  static const Codec int4 = form_codec(ops::form_named("int4"), "4-bit integers, blocks of 64 with a scale");
  static const std::array<const Codec*, 4> rows{&bf16(), &fp8, &int8, &int4};
  return rows;
}

const Codec* find_codec(std::string_view name) {
  for (const Codec* codec : codecs()) {
    if (codec->name == name) return codec;
  }
  return nullptr;
}

Choice choice_of(const Codec& codec, Use use) {
  PLIMSOLL_CHECK(codec.numbers.size() <= kMostNumbers, "codec {} has {} settings, and there is room for {}", codec.name,
                 codec.numbers.size(), kMostNumbers);
  Choice choice{.codec = &codec};
  for (std::size_t index = 0; index < codec.numbers.size(); ++index) {
    const bool means = use == Use::gradients || !codec.numbers[index].gradients_alone;
    choice.numbers[index] = means ? codec.numbers[index].usual : 0.0;
  }
  return choice;
}

std::string_view key_of(Use use) {
  switch (use) {
    case Use::gradients: return "communication.gradients";
    case Use::weights: return "communication.weights";
    case Use::activations: return "communication.activations";
  }
  PLIMSOLL_CHECK(false, "a use that has no key");
}

const Choice& choice_for(const Choices& choices, Use use) {
  return use == Use::gradients ? choices.gradients : use == Use::weights ? choices.weights : choices.activations;
}

Choice& choice_for(Choices& choices, Use use) {
  return use == Use::gradients ? choices.gradients : use == Use::weights ? choices.weights : choices.activations;
}

std::string words(const Choice& choice, Use use) {
  if (!choice.any()) return "none";
  const Choice usual = choice_of(*choice.codec, use);
  std::vector<std::string> parts;
  for (std::size_t index = 0; index < choice.codec->numbers.size(); ++index) {
    const Number& number = choice.codec->numbers[index];
    if (choice.numbers[index] == usual.numbers[index]) continue;
    parts.push_back(number.flag ? fmt::format("{} {}", number.name, choice.numbers[index] != 0.0)
                                : fmt::format("{} {}", number.name, choice.numbers[index]));
  }
  return parts.empty() ? std::string(choice.codec->name) : fmt::format("{} ({})", choice.codec->name, fmt::join(parts, ", "));
}

std::string why_exact(const Ask& ask) {
  if (!ask.choice.any()) return "no codec is asked for";
  return ask.choice.codec->exact ? ask.choice.codec->exact(ask) : std::string();
}

std::int64_t plain_bytes(const Ask& ask) {
  const std::int64_t elements = ask.type.shape.elements();
  const std::int64_t others = ask.members - 1;
  // A sum is dealt out by elements, parts of a matrix by rows.
  const bool by_rows = ask.wanted != Wanted::sum && ask.type.shape.rank() > 1;
  const std::int64_t columns = by_rows ? ask.type.shape[-1] : 1;
  const std::int64_t own = ops::Seat{.members = ask.members}.units_here(elements / columns) * columns;
  const std::int64_t size = base::size_of(ask.type.dtype);
  switch (ask.wanted) {
    case Wanted::sum: return (others * own + elements - own) * size;
    case Wanted::shard: return (elements - own) * size;
    case Wanted::gather: return others * own * size;
    case Wanted::message: return elements * size;
  }
  return 0;
}

std::int64_t wire_bytes(const Ask& ask) { return why_exact(ask).empty() ? ask.choice.codec->wire_bytes(ask) : plain_bytes(ask); }

std::vector<ValueId> emit(Builder& build, const Task& task) {
  Flight flight = task.choice.codec->emit(build, task);
  while (flight.next != nullptr) flight = flight.next(build, task, flight.values);
  return std::move(flight.values);
}

}  // namespace plimsoll::codecs
