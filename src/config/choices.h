// The words of the run file for each enumeration. One table per type serves reading, writing, messages and the docs.
#pragma once

#include <array>
#include <string_view>

#include "config/run.h"

namespace plimsoll::config {

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

template <typename E>
struct Choices;

template <>
struct Choices<model::Precision> {
  static constexpr std::array<Choice<model::Precision>, 4> kTable{
      {{"f32", model::Precision::f32}, {"bf16", model::Precision::bf16}, {"fp16", model::Precision::fp16}, {"fp8", model::Precision::fp8}}};
};

template <>
struct Choices<Device> {
  static constexpr std::array<Choice<Device>, 3> kTable{{{"auto", Device::automatic}, {"cpu", Device::cpu}, {"cuda", Device::cuda}}};
};

template <>
struct Choices<Transport> {
  static constexpr std::array<Choice<Transport>, 4> kTable{
      {{"auto", Transport::automatic}, {"local", Transport::local}, {"mpi", Transport::mpi}, {"nccl", Transport::nccl}}};
};

template <>
struct Choices<Sums> {
  static constexpr std::array<Choice<Sums>, 2> kTable{{{"canonical", Sums::canonical}, {"fast", Sums::fast}}};
};

template <>
struct Choices<model::Master> {
  static constexpr std::array<Choice<model::Master>, 3> kTable{
      {{"f32", model::Master::f32}, {"split", model::Master::split}, {"none", model::Master::none}}};
};

template <>
struct Choices<model::Moments> {
  static constexpr std::array<Choice<model::Moments>, 2> kTable{{{"f32", model::Moments::f32}, {"bf16", model::Moments::bf16}}};
};

template <>
struct Choices<LrScheduleType> {
  static constexpr std::array<Choice<LrScheduleType>, 5> kTable{{{"constant", LrScheduleType::constant},
                                                                 {"linear", LrScheduleType::linear},
                                                                 {"cosine", LrScheduleType::cosine},
                                                                 {"wsd", LrScheduleType::wsd},
                                                                 {"points", LrScheduleType::points}}};
};

template <>
struct Choices<OnFullDisk> {
  static constexpr std::array<Choice<OnFullDisk>, 2> kTable{{{"stop", OnFullDisk::stop}, {"retry", OnFullDisk::retry}}};
};

template <>
struct Choices<WarmupShape> {
  static constexpr std::array<Choice<WarmupShape>, 2> kTable{{{"linear", WarmupShape::linear}, {"log", WarmupShape::log}}};
};

template <>
struct Choices<model::Family> {
  static constexpr std::array<Choice<model::Family>, 3> kTable{
      {{"gpt2", model::Family::gpt2}, {"llama", model::Family::llama}, {"bert", model::Family::bert}}};
};

template <>
struct Choices<model::ActivationKind> {
  static constexpr std::array<Choice<model::ActivationKind>, 4> kTable{{{"gelu_tanh", model::ActivationKind::gelu_tanh},
                                                                        {"gelu_erf", model::ActivationKind::gelu_erf},
                                                                        {"relu", model::ActivationKind::relu},
                                                                        {"silu", model::ActivationKind::silu}}};
};

template <>
struct Choices<model::RopeScaling> {
  static constexpr std::array<Choice<model::RopeScaling>, 3> kTable{
      {{"none", model::RopeScaling::none}, {"linear", model::RopeScaling::linear}, {"llama3", model::RopeScaling::llama3}}};
};

template <typename E>
std::string_view choice_name(E value) {
  for (const auto& choice : Choices<E>::kTable) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

}  // namespace plimsoll::config
