// Plans of whole models: verified, stored and read back, and refused when damaged. The kernel table is a stand-in, so
// that nothing here needs a backend.
#include "lowering/lower.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "graph/programs/programs.h"
#include "plan/file.h"
#include "plan/print.h"
#include "plan/verify.h"
#include "plan/waterline.h"
#include "support/small_model.h"

namespace plimsoll::lowering {
namespace {

ops::KernelChoice stand_in(const ops::KernelQuery& query) {
  return {fmt::format("{}.stand-in", ops::name_of(query.op)), query.inputs.empty() ? 0 : query.inputs[0].bytes() / 3};
}

struct Case {
  model::Family family = families::gpt2();
  model::Precision precision = model::Precision::f32;
  std::int32_t micro_batches = 1;
};

plan::Plan plan_of(const Case& choice, std::int64_t layers = 3) {
  const model::Model model =
      tests::small_model(choice.family, {.layers = layers, .width = 24, .heads = 4, .kv_heads = 4, .ffn = 40, .context = 16, .vocab = 31});
  model::Training training;
  training.precision = choice.precision;
  training.micro_batch = {.samples = 2, .sequence = 8};
  training.accumulates = choice.micro_batches > 1;
  const graph::Graph train = graph::training_graph(model, training);
  const graph::Graph evaluate = graph::evaluation_graph(model, training);
  return lower({.model = "small",
                .programs = {{"train", train, choice.micro_batches}, {"evaluate", evaluate, 1}},
                .strategy = {},
                .choose = stand_in,
                .threads = 2});
}

TEST(Lower, EveryPlanIsVerified) {
  for (const model::Family family : {families::gpt2(), families::llama(), families::bert()}) {
    for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16, model::Precision::fp16}) {
      for (const std::int32_t micro_batches : {1, 2, 5}) {
        const plan::Plan plan = plan_of({family, precision, micro_batches});
        const std::vector<std::string> found = plan::problems(plan);
        EXPECT_TRUE(found.empty()) << found.front();
      }
    }
  }
}

TEST(Lower, IsDeterministic) { EXPECT_EQ(plan_of({}), plan_of({})); }

TEST(Lower, BlocksShareProcedures) { EXPECT_EQ(plan_of({}, 3).procedures.size(), plan_of({}, 9).procedures.size()); }

TEST(Lower, ArenaIsWhatTheWaterlineSays) {
  const plan::Plan plan = plan_of({.micro_batches = 4});
  const plan::RankClass& rank_class = plan.classes.at(0);
  const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
  const base::Bytes arena = rank_class.arena[0];
  EXPECT_GE(arena, line.peak);
  EXPECT_LE(static_cast<double>(arena.count), 1.03 * static_cast<double>(line.peak.count));
  base::Bytes sum{0};
  for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call)) sum += bytes;
  EXPECT_EQ(sum, line.peak);
}

// Memory of a step does not grow with the number of micro-batches, but for their inputs and the f32 accumulators.
TEST(Lower, MicroBatchesShareTheirMemory) {
  const base::Bytes two = plan_of({.micro_batches = 2}).classes.at(0).arena[0];
  const base::Bytes eight = plan_of({.micro_batches = 8}).classes.at(0).arena[0];
  EXPECT_LE((eight - two).count, 6 * 4096);
}

TEST(Lower, LaterMicroBatchesAccumulate) {
  const plan::Plan plan = plan_of({.micro_batches = 2});
  const std::vector<plan::Call>& calls = plan.classes.at(0).programs.at(0).streams.at(0).calls;
  for (const plan::Call& call : calls) {
    if (!call.label.ends_with(".backward")) continue;
    for (const plan::Instruction& instruction : plan.procedures[plan.classes.at(0).programs.at(0).procedure_of(call)].instructions) {
      const auto& compute = std::get<plan::Compute>(instruction);
      if (const auto* grad = std::get_if<ops::LinearGradWeight>(&compute.op)) {
        EXPECT_EQ(grad->accumulate, call.micro_batch > 0);
      }
    }
  }
}

TEST(Lower, PlansAreStoredAndReadBack) {
  const plan::Plan plan = plan_of({.precision = model::Precision::bf16, .micro_batches = 2});
  const std::string text = base::write_json(plan::to_json(plan));
  EXPECT_EQ(plan::plan_from_json(base::parse_json(text, "plan.json")), plan);
}

TEST(Lower, DiffNamesWhatChanged) {
  const plan::Plan plan = plan_of({});
  EXPECT_TRUE(plan::diff(plan, plan).empty());
  plan::Plan other = plan;
  other.classes[0].buffers[plan::BufferId{3}].offset.count += 64;
  const std::vector<std::string> lines = plan::diff(plan, other);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].starts_with("- ") && lines[1].starts_with("+ "));
}

// A plan file that was changed by hand or by a bad disk is refused, and never brings the reader down.
TEST(Lower, DamagedPlanFilesAreRefusedOrEqual) {
  const plan::Plan plan = plan_of({}, 1);
  const std::string text = base::write_json(plan::to_json(plan));
  std::mt19937 random(11);
  int refused = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::string damaged = text;
    const std::size_t place = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
    damaged[place] = static_cast<char>(std::uniform_int_distribution<int>('0', '9')(random));
    try {
      plan::plan_from_json(base::parse_json(damaged, "plan.json"));
    } catch (const base::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kRounds / 4);
}

struct Damage {
  const char* name;
  void (*apply)(plan::Plan&);
};

class DamagedPlan : public testing::TestWithParam<Damage> {};

TEST_P(DamagedPlan, IsFound) {
  plan::Plan plan = plan_of({.micro_batches = 2});
  GetParam().apply(plan);
  EXPECT_FALSE(plan::problems(plan).empty());
}

plan::Call& first_backward(plan::Plan& plan) {
  for (plan::Call& call : plan.classes[0].programs[0].streams[0].calls) {
    if (call.label.ends_with(".backward")) return call;
  }
  throw std::logic_error("no backward call");
}

INSTANTIATE_TEST_SUITE_P(Plans, DamagedPlan,
                         testing::Values(Damage{"overlap",
                                                [](plan::Plan& plan) {
                                                  plan.classes[0].buffers[plan::BufferId{2}].offset =
                                                      plan.classes[0].buffers[plan::BufferId{1}].offset;
                                                }},
                                         Damage{"small_arena", [](plan::Plan& plan) { plan.classes[0].arena[0].count -= 64; }},
                                         Damage{"large_arena", [](plan::Plan& plan) { plan.classes[0].arena[0].count += 64; }},
                                         Damage{"no_frame", [](plan::Plan& plan) { first_backward(plan).frame = {}; }},
                                         Damage{"missing_binding", [](plan::Plan& plan) { first_backward(plan).bindings.pop_back(); }},
                                         Damage{"wrong_binding",
                                                [](plan::Plan& plan) {
                                                  std::swap(first_backward(plan).bindings.front(), first_backward(plan).bindings.back());
                                                }},
                                         Damage{"deadlock",
                                                [](plan::Plan& plan) {
                                                  plan.classes[0].programs[0].tokens = 1;
                                                  first_backward(plan).waits.push_back({0});
                                                  first_backward(plan).signals = {0};
                                                }},
                                         Damage{"lost_call",
                                                [](plan::Plan& plan) {
                                                  auto& calls = plan.classes[0].programs[0].streams[0].calls;
                                                  calls.erase(calls.begin() + 1);
                                                }},
                                         Damage{"short_life",
                                                [](plan::Plan& plan) {
                                                  for (plan::Buffer& buffer : plan.classes[0].buffers) {
                                                    if (buffer.kind == plan::BufferKind::gradient) buffer.last = buffer.first;
                                                  }
                                                }}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace plimsoll::lowering
