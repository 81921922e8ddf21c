// Frozen weights stored in a form: every layout gives the bits of a run whose weights are as they are, but hold what the records decode
// to, and holds fewer bytes.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "ops/forms/form.h"
#include "ranks/compare.h"
#include "support/refusal.h"
#include "support/small_model.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

// A form that is declared here: of 32 elements the signs, and half of the largest magnitude.
constexpr std::int64_t kSigns = 32;

void signs_of(const float* values, std::int64_t blocks, std::uint8_t* records) {
  for (std::int64_t block = 0; block < blocks; ++block, values += kSigns, records += kSigns / 8 + sizeof(float)) {
    float half = 0.0f;
    std::fill_n(records, kSigns / 8, std::uint8_t{0});
    for (std::int64_t i = 0; i < kSigns; ++i) {
      half = std::max(half, std::abs(values[i]) / 2.0f);
      if (std::signbit(values[i])) records[i / 8] |= static_cast<std::uint8_t>(1u << (i % 8));
    }
    std::memcpy(records + kSigns / 8, &half, sizeof half);
  }
}

void from_signs(const std::uint8_t* records, std::int64_t blocks, float* values) {
  for (std::int64_t block = 0; block < blocks; ++block, values += kSigns, records += kSigns / 8 + sizeof(float)) {
    float half = 0.0f;
    std::memcpy(&half, records + kSigns / 8, sizeof half);
    for (std::int64_t i = 0; i < kSigns; ++i) values[i] = (records[i / 8] >> (i % 8) & 1) != 0 ? -half : half;
  }
}

constexpr ops::FormInfo kOfThisTest{
    .name = "signs_of_a_test", .block = kSigns, .record = kSigns / 8 + sizeof(float), .encode = {{signs_of}}, .decode = {{from_signs}}};

std::vector<const ops::FormInfo*> all_forms() {
  std::vector<const ops::FormInfo*> all{&kOfThisTest};
  for (const ops::FormInfo& form : ops::forms()) all.push_back(&form);
  return all;
}

// Matrices wide enough that two tensor ranks share them out in whole blocks.
model::Model wide_model(Family family) { return tests::small_model(family, {.width = 128, .heads = 2, .kv_heads = 2, .ffn = 256}); }

// The attention stays trained, so that gradients pass through the stored weights.
Task task_of(Family family, Precision precision) {
  return {.model = wide_model(family),
          .precision = precision,
          .steps = 3,
          .freeze = {"blocks.*.ffn.*.weight", "blocks.*.attention.out.weight"}};
}

bool is_stored(const train::ParameterInfo& info) {
  return info.shape.rank() == 2 && (info.name.find(".ffn.") != std::string::npos || info.name.find(".attention.out.") != std::string::npos);
}

// Writes into all weights what they were drawn as, frozen ones as their records decode.
void round_weights(train::Session& session, const ops::FormInfo& form, const std::map<std::string, std::vector<float>>& drawn) {
  train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> out) {
    const std::int64_t columns = info.shape.elements() / info.shape[0];
    std::copy_n(drawn.at(info.name).begin() + row * columns, out.size(), out.begin());
    if (!is_stored(info)) return;
    std::vector<std::uint8_t> records(out.size() / static_cast<std::size_t>(columns) * static_cast<std::size_t>(form.bytes(columns)));
    ops::encode_rows(form, columns, out, records);
    ops::decode_rows(form, columns, records, out);
  });
}

// The weights as they are drawn, in f32.
std::map<std::string, std::vector<float>> drawn_weights(const model::Model& model) {
  Task task{.model = model};
  train::Session session(options_for(task, {}));
  std::map<std::string, std::vector<float>> drawn;
  for (const train::ParameterInfo& info : train::parameters_of(session)) drawn[info.name] = train::read_parameter(session, info.name);
  return drawn;
}

struct Case {
  const char* name;
  Layout layout;
};

std::vector<Case> layouts() {
  std::vector<Case> cases{{"one rank", {}}, {"accumulation", {.strategy = {}, .micro = 1}}};
  cases[0].layout.micro = 8;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    Layout layout;
    layout.strategy.data = 2;
    layout.strategy.zero = zero;
    cases.push_back({"two data ranks", layout});
  }
  Layout tensor;
  tensor.strategy.tensor = 2;
  cases.push_back({"two tensor ranks", tensor});
  tensor.strategy.sequence_parallel = true;
  cases.push_back({"two tensor ranks by rows", tensor});
  tensor.strategy.data = 2;
  tensor.strategy.zero = 3;
  cases.push_back({"tensor and ZeRO 3", tensor});
  Layout pipe;
  pipe.strategy.pipe = 2;
  cases.push_back({"pipeline", pipe});
  Layout recompute;
  recompute.strategy.recompute = strategy::Recompute::full;
  cases.push_back({"recompute", recompute});
  Layout host;
  host.strategy.offload.params.host = 1.0;
  host.strategy.offload.optimizer.host = 1.0;
  cases.push_back({"weights in the host's memory", host});
  return cases;
}

TEST(StoredForms, EveryLayoutGivesTheBitsOfRoundedWeights) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const auto drawn = drawn_weights(wide_model(family));
    for (const Case& at : layouts()) {
      for (const ops::FormInfo* form : all_forms()) {
        const bool cut = at.layout.strategy.tensor > 1;
        if (form->name != "int8" && (at.layout.strategy.ranks() > 1 || family == Family::llama) && !cut) continue;
        if (family == Family::llama && at.layout.strategy.data > 1) continue;
        SCOPED_TRACE(fmt::format("{}, {}, {}", model::name_of(family), at.name, form->name));
        Task rounded = task_of(family, Precision::bf16);
        rounded.begin = [&](train::Session& session) { round_weights(session, *form, drawn); };
        Task stored = task_of(family, Precision::bf16);
        stored.freeze_as = form;
        const Outcome expected = train(rounded, at.layout);
        const Outcome found = train(stored, at.layout);
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.norms, expected.norms);
        EXPECT_EQ(found.evaluation, expected.evaluation);
        for (const auto& [name, values] : expected.parameters) {
          const bool in_records = name.find(".ffn.") != std::string::npos || name.find(".attention.out.") != std::string::npos;
          if (in_records && name.ends_with(".weight")) {  // what is read back is not rounded to bf16
            for (std::size_t i = 0; i < values.size(); ++i)
              ASSERT_EQ(base::f32_from_bf16(base::bf16_from_f32(found.parameters.at(name)[i])), values[i]) << name;
          } else {
            EXPECT_EQ(found.parameters.at(name), values) << name;
          }
        }
        EXPECT_LT(found.arena + found.host_arena, expected.arena + expected.host_arena);
      }
    }
  }
}

// 66 bytes for 64 elements where bf16 takes 128: the plan holds that much less for ever.
TEST(StoredForms, APlanHoldsRecordsInsteadOfWeights) {
  const auto held = [](const ops::FormInfo* form) {
    Task task = task_of(Family::gpt2, Precision::bf16);
    task.freeze_as = form;
    const plan::Plan plan = train::plan_session(options_for(task, {}));
    std::int64_t bytes = 0;
    for (const plan::Buffer& buffer : plan.classes[0].buffers) bytes += buffer.kind == plan::BufferKind::parameter ? buffer.bytes.count : 0;
    return bytes;
  };
  const std::int64_t elements = 2 * (128 * 128 + 2 * 128 * 256);
  const std::int64_t plain = held(nullptr);
  EXPECT_EQ(plain - held(&ops::form_named("int8")), elements * 2 - elements / 64 * 66);
  EXPECT_EQ(plain - held(&ops::form_named("fp8")), elements * 2 - elements / 64 * 66);
  EXPECT_EQ(plain - held(&ops::form_named("int4")), elements * 2 - elements / 64 * 34);
  EXPECT_EQ(plain - held(&kOfThisTest), elements * 2 - elements / 32 * 8);
}

TEST(StoredForms, WhatCannotBeIsRefusedWithTheReason) {
  const auto refusal = [](const Task& task, const Layout& layout, base::ErrorKind kind) {
    return tests::refusal([&] { train::plan_session(options_for(task, layout)); }, kind);
  };
  Task task = task_of(Family::gpt2, Precision::bf16);
  task.freeze_as = &ops::form_named("int8");
  Layout tensor;
  tensor.strategy.tensor = 2;
  task.model = tests::small_model(Family::gpt2, {.width = 96, .heads = 2, .ffn = 192});
  EXPECT_NE(refusal(task, tensor, base::ErrorKind::not_legal).find("1 unit that must stay together"), std::string::npos);
  Layout tiled;
  tiled.strategy.tile = base::Bytes{10'000};
  task.model = wide_model(Family::gpt2);
  EXPECT_NE(refusal(task, tiled, base::ErrorKind::not_legal).find("is stored as int8, which is decoded whole"), std::string::npos);
  task.freeze = {};
  EXPECT_NE(refusal(task, {}, base::ErrorKind::bad_input).find("\"freeze\" names none"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::ranks
