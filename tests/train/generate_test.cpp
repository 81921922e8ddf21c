// Generating with a cache of keys and values against the whole text every time, and drawing tokens from logits.
#include "train/generation/generate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "plan/verify.h"
#include "support/small_model.h"

namespace plimsoll::train {
namespace {

model::Model small_model(model::Family family) {
  model::Model model = tests::small_model(family, {.layers = 3, .context = 48, .vocab = 61});
  model.init_std = 0.3;  // large enough that the likeliest token depends on the text
  return model;
}

SessionOptions options_for(const model::Model& model, std::int64_t slots, std::int64_t prompt_rows, model::Precision precision) {
  SessionOptions options{.forward = forward_of(model), .name = "small", .training = {}, .threads = 2, .train = false};
  options.training.precision = precision;
  options.infer = model::MicroBatch{1, slots};
  options.decode = Decoding{.slots = slots, .prompt_rows = prompt_rows};
  return options;
}

std::vector<std::int32_t> text_of(std::size_t length) {
  std::vector<std::int32_t> text(length);
  for (std::size_t place = 0; place < length; ++place) text[place] = static_cast<std::int32_t>((place * 17 + 5) % 61);
  return text;
}

std::vector<std::int32_t> continued(NextToken& next, const std::vector<std::int32_t>& prompt, std::int64_t count,
                                    const Sampling& sampling) {
  std::vector<std::int32_t> made;
  generate(next, prompt, count, sampling, [&](std::int32_t token) {
    made.push_back(token);
    return true;
  });
  return made;
}

struct Variant {
  const char* name;
  model::Family family;
  model::Precision precision = model::Precision::f32;
  std::int64_t window = 0;
  bool qk_norm = false;
};

class EveryModel : public testing::TestWithParam<Variant> {
 protected:
  model::Model model() const {
    model::Model model = small_model(GetParam().family);
    model.sliding_window = GetParam().window;
    model.qk_norm = GetParam().qk_norm;
    return model;
  }
};

// Prompts shorter and longer than what is read at a time, texts that end within the context and far behind it.
TEST_P(EveryModel, ACacheChangesNoToken) {
  for (const auto [slots, rows, prompt] : {std::array<std::int64_t, 3>{48, 8, 1}, {48, 8, 9}, {48, 16, 30}, {20, 7, 45}, {20, 32, 20}}) {
    SCOPED_TRACE(fmt::format("{} slots, {} rows, {} tokens of prompt", slots, rows, prompt));
    Session session(options_for(model(), slots, rows, GetParam().precision));
    EXPECT_EQ(plan::problems(session.plan()), std::vector<std::string>{});
    CachedNextToken cached(session);
    WholeNextToken whole(session);
    const std::vector<std::int32_t> text = text_of(static_cast<std::size_t>(prompt));
    const std::vector<std::int32_t> expected = continued(whole, text, 60, {});
    EXPECT_EQ(continued(cached, text, 60, {}), expected);
    EXPECT_GT(std::set<std::int32_t>(expected.begin(), expected.end()).size(), 1u) << "the same token always proves nothing";
  }
}

TEST_P(EveryModel, LogitsOfTheCacheAreThoseOfTheWholeText) {
  Session session(options_for(model(), 40, 8, GetParam().precision));
  CachedNextToken cached(session);
  WholeNextToken whole(session);
  for (std::size_t length = 1; length <= 60; ++length) {
    const std::vector<std::int32_t> text = text_of(length);
    const std::span<const float> expected = whole.logits(text);
    const std::span<const float> found = cached.logits(text);
    double largest = 0.0;
    double worst = 0.0;
    for (std::size_t token = 0; token < expected.size(); ++token) {
      largest = std::max(largest, std::abs(static_cast<double>(expected[token])));
      worst = std::max(worst, std::abs(static_cast<double>(expected[token]) - static_cast<double>(found[token])));
    }
    EXPECT_LE(worst, 1e-5 * largest) << "after " << length << " tokens";
  }
}

// Neither old contents of the cache nor of memory that programs share may be seen.
TEST_P(EveryModel, NothingOfAnEarlierTextIsSeen) {
  const SessionOptions options = options_for(model(), 30, 8, GetParam().precision);
  Session clean(options);
  Session used(options);
  const plan::RankClass& rank_class = used.executor().rank_class();
  for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
    const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
    if (buffer.persistent() && buffer.kind != plan::BufferKind::state) continue;
    std::memset(used.executor().host_view(plan::BufferId{index}), 0xFF, static_cast<std::size_t>(buffer.bytes.count));
  }
  CachedNextToken of_clean(clean);
  CachedNextToken of_used(used);
  const std::vector<std::int32_t> text = text_of(13);
  EXPECT_EQ(continued(of_clean, text, 40, {}), continued(of_used, text, 40, {}));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         testing::Values(Variant{.name = "gpt2", .family = families::gpt2()},
                                         Variant{.name = "llama", .family = families::llama()},
                                         Variant{.name = "llama_window", .family = families::llama(), .window = 5},
                                         Variant{.name = "llama_qk_norm", .family = families::llama(), .qk_norm = true}),
                         [](const auto& each) { return each.param.name; });

// In 16 bits two likely tokens may change places by rounding: only the logits are compared.
using Rounded = EveryModel;
TEST_P(Rounded, LogitsOfTheCacheAreNear) {
  Session session(options_for(model(), 40, 8, GetParam().precision));
  CachedNextToken cached(session);
  WholeNextToken whole(session);
  const std::vector<std::int32_t> text = text_of(33);
  const std::span<const float> expected = whole.logits(text);
  const std::span<const float> found = cached.logits(text);
  float largest = 0.0f;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t token = 0; token < expected.size(); ++token) EXPECT_NEAR(found[token], expected[token], 0.06f * largest);
}

INSTANTIATE_TEST_SUITE_P(Models, Rounded,
                         testing::Values(Variant{.name = "gpt2_bf16", .family = families::gpt2(), .precision = model::Precision::bf16},
                                         Variant{.name = "llama_fp16", .family = families::llama(), .precision = model::Precision::fp16}),
                         [](const auto& each) { return each.param.name; });

TEST(Forgetting, KeepsHalfAContextAndMore) {
  for (const std::int64_t slots : {1, 2, 3, 7, 20}) {
    for (std::int64_t length = 1; length < 100; ++length) {
      const std::int64_t forgotten = forgotten_tokens(length, slots);
      EXPECT_EQ(length <= slots, forgotten == 0);
      EXPECT_LE(length - forgotten, slots);
      EXPECT_GE(length - forgotten, std::min(length, (slots + 1) / 2));
      EXPECT_GE(forgotten_tokens(length + 1, slots), forgotten);
    }
  }
}

// ---- drawing

// A model whose weights are damaged.
class NoNumbers final : public NextToken {
 public:
  explicit NoNumbers(float value) : logits_{1.0f, value, 2.0f} {}
  std::span<const float> logits(std::span<const std::int32_t>) override { return logits_; }

 private:
  std::vector<float> logits_;
};

TEST(Generate, NothingIsDrawnFromWhatIsNoNumber) {
  for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
    NoNumbers next(value);
    for (const double temperature : {0.0, 1.0}) EXPECT_THROW(continued(next, {5, 6}, 1, {.temperature = temperature}), base::Error);
  }
}

const std::vector<float> kLogits{0.0f, 2.0f, 1.0f, 2.0f, -3.0f};

std::map<std::int32_t, int> draws(const Sampling& sampling, int count) {
  std::map<std::int32_t, int> seen;
  for (int index = 0; index < count; ++index) ++seen[sample_token(kLogits, sampling, index)];
  return seen;
}

TEST(Sampling, GreedyTakesTheFirstOfTheLikeliest) { EXPECT_EQ(draws({}, 3), (std::map<std::int32_t, int>{{1, 3}})); }

TEST(Sampling, FollowsTheProbabilities) {
  constexpr int kCount = 40'000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0.0;
    for (const float logit : kLogits) total += std::exp(static_cast<double>(logit) / temperature);
    // Whether all tokens are drawn from or they are put in order first.
    for (const double top_p : {1.0, 1.0 - 1e-12}) {
      std::map<std::int32_t, int> seen = draws({.temperature = temperature, .top_p = top_p, .seed = 3}, kCount);
      for (std::int32_t token = 0; token < std::ssize(kLogits); ++token) {
        const double expected = std::exp(static_cast<double>(kLogits[static_cast<std::size_t>(token)]) / temperature) / total;
        EXPECT_NEAR(seen[token] / static_cast<double>(kCount), expected, 0.012) << token << " at " << temperature;
      }
    }
  }
}

std::vector<std::int32_t> drawn(const Sampling& sampling) {
  std::vector<std::int32_t> tokens;
  for (const auto& [token, count] : draws(sampling, 2000)) tokens.push_back(token);
  return tokens;
}

TEST(Sampling, DrawsOnlyFromTheLikeliest) {
  using Tokens = std::vector<std::int32_t>;
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 1}), (Tokens{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 2}), (Tokens{1, 3}));
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 3}), (Tokens{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 100}), (Tokens{0, 1, 2, 3, 4}));
  // Shares at temperature 1: 0.40, 0.40, 0.15, 0.05, 0.003.
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.0}), (Tokens{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.3}), (Tokens{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.5}), (Tokens{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.9}), (Tokens{1, 2, 3}));
  // Of the two likeliest alone each has one half.
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 2, .top_p = 0.45}), (Tokens{1}));
}

TEST(Sampling, IsDecidedBySeedAndIndex) {
  const Sampling one{.temperature = 1.0, .seed = 1};
  const Sampling two{.temperature = 1.0, .seed = 2};
  std::vector<std::int32_t> first, again, other;
  for (std::int64_t index = 0; index < 50; ++index) {
    first.push_back(sample_token(kLogits, one, index));
    again.push_back(sample_token(kLogits, one, index));
    other.push_back(sample_token(kLogits, two, index));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

}  // namespace
}  // namespace plimsoll::train
