// Attention over parts of the keys, merged, is attention over all of them: outputs, log-sums and gradients, with the processor's kernels.
// A part's gradient is found in both ways: through the merge, and from the output and log-sum of the whole.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "kernels_attention/naive_attention.h"
#include "ops/masks/rules.h"
#include "ops/step_scalars.h"

namespace plimsoll::test {
namespace {

using base::DType;
using base::Shape;
using base::TensorType;
using kernels::cpu::Tensor;

// f32, i32 or step scalars.
struct Value {
  TensorType type;
  std::vector<float> data;

  Value() = default;
  explicit Value(TensorType of) : type(of), data(static_cast<std::size_t>(of.bytes() / 4), NAN) {}
  Tensor tensor() { return {data.data(), type}; }
};
using Values = std::vector<Value>;

Values run(const ops::Op& op, std::vector<Value*> operands) {
  std::vector<TensorType> types;
  std::vector<Tensor> inputs;
  for (Value* operand : operands) {
    types.push_back(operand->type);
    inputs.push_back(operand->tensor());
  }
  Values results;
  std::vector<TensorType> result_types = ops::definition_of(op).infer(op, types);
  for (const TensorType& type : result_types) results.emplace_back(type);
  std::vector<Tensor> outputs;
  for (Value& result : results) outputs.push_back(result.tensor());
  const ops::KernelChoice choice = kernels::cpu::choose({op, types, result_types, 2});
  EXPECT_FALSE(choice.name.ends_with(".reference")) << choice.name;
  auto* workspace = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>((choice.workspace + 64) / 64 * 64)));
  kernels::cpu::kernel_named(choice.name).run({op, inputs, outputs, workspace, 2});
  std::free(workspace);
  return results;
}

void expect_close(const Value& found, const std::vector<float>& expected, std::string_view what) {
  double largest = 1e-6;
  for (const float value : expected) largest = std::max<double>(largest, std::isfinite(value) ? std::abs(value) : 0.0);
  ASSERT_EQ(found.data.size(), expected.size()) << what;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    if (found.data[e] == expected[e]) continue;  // equal infinities
    ASSERT_LE(std::abs(found.data[e] - expected[e]), 1e-5 * largest) << what << " " << e << ": " << found.data[e] << ", " << expected[e];
  }
}

// Rows [begin, end) of (B, T, W), or of (B, T).
Value rows_of(const Value& whole, std::int64_t begin, std::int64_t end) {
  Shape shape = whole.type.shape;
  const std::int64_t length = shape[1];
  const std::int64_t width = shape.rank() == 3 ? shape[2] : 1;
  shape.set(1, end - begin);
  Value part({whole.type.dtype, shape});
  for (std::int64_t b = 0; b < shape[0]; ++b)
    std::copy_n(whole.data.begin() + (b * length + begin) * width, (end - begin) * width, part.data.begin() + b * (end - begin) * width);
  return part;
}

std::vector<float> joined(const Value& a, const Value& b) {
  const Shape& first = a.type.shape;
  const Shape& second = b.type.shape;
  std::vector<float> whole;
  for (std::int64_t n = 0; n < first[0]; ++n) {
    for (const Value* part : {&a, &b}) {
      const std::int64_t size = part->type.shape[1] * first[2];
      whole.insert(whole.end(), part->data.begin() + n * size, part->data.begin() + (n + 1) * size);
    }
  }
  EXPECT_EQ(first[2], second[2]);
  return whole;
}

struct Problem {
  ops::Attention attention;
  Value query, key, value, segments, samples, scalars, dout, dlse;

  explicit Problem(std::uint64_t seed) : random_(seed) {
    const auto pick = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution(low, high)(random_); };
    const std::int64_t batch = pick(1, 2);
    length = pick(4, 150);
    attention = {
        .heads = {.query = 4, .kv = pick(0, 1) == 0 ? 2 : 4, .dim = pick(0, 1) == 0 ? 16 : 20}, .separate = true, .length = length};
    attention.causal = pick(0, 3) != 0;
    if (pick(0, 2) == 0) attention.window = pick(1, length);
    attention.segmented = pick(0, 2) == 0;
    if (pick(0, 2) == 0) attention.rate = 0.25;
    if (pick(0, 2) == 0) attention.pattern = {ops::find_mask_rule("strided"), {pick(0, 20), pick(2, 40)}};
    const ops::Heads& heads = attention.heads;
    query = normal({batch, length, heads.query * heads.dim});
    key = normal({batch, length, heads.kv * heads.dim});
    value = normal({batch, length, heads.kv * heads.dim});
    dout = normal({batch, length, heads.query * heads.dim});
    dlse = normal({batch, heads.query, length});
    segments = Value({DType::i32, Shape{batch, length}});
    auto* ids = reinterpret_cast<std::int32_t*>(segments.data.data());
    for (std::int64_t i = 0; i < batch * length; ++i) ids[i] = static_cast<std::int32_t>(i % length / 30) - (pick(0, 9) == 0 ? 9 : 0);
    samples = Value({DType::i32, Shape{batch}});
    for (float& sample : samples.data) sample = 0.0f;
    scalars = Value(ops::step_scalars_type());
    const ops::StepScalars step{};
    std::memcpy(scalars.data.data(), &step, sizeof step);
  }

  // Operands behind the tensors, for queries [first, ..) and keys [begin, end).
  std::vector<Value*> masks(Value& query_ids, Value& key_ids) {
    std::vector<Value*> list;
    if (attention.segmented) list = {&query_ids, &key_ids};
    if (attention.rate > 0.0) list.insert(list.end(), {&samples, &scalars});
    return list;
  }

  std::int64_t length = 0;

 private:
  Value normal(const Shape& shape) {
    Value made({DType::f32, shape});
    std::normal_distribution<float> gauss;
    for (float& x : made.data) x = gauss(random_);
    return made;
  }
  std::mt19937_64 random_;
};

std::vector<Value*> with(std::vector<Value*> operands, const std::vector<Value*>& behind) {
  operands.insert(operands.end(), behind.begin(), behind.end());
  return operands;
}

// One part of the keys, and what all queries see of it.
struct Part {
  Part(Problem& problem, std::int64_t begin, std::int64_t end)
      : attention(problem.attention),
        key(rows_of(problem.key, begin, end)),
        value(rows_of(problem.value, begin, end)),
        ids(rows_of(problem.segments, begin, end)),
        masks(problem.masks(problem.segments, ids)) {
    attention.first_key = begin;
    Values made = run(attention, with({&problem.query, &key, &value}, masks));
    out = made[0];
    lse = made[1];
  }
  // From what arrived at its results, or at the whole's.
  Values gradients(Problem& problem, Value& dout, Value& of, Value& of_lse, Value* dlse) {
    std::vector<Value*> operands{&dout, &problem.query, &key, &value, &of, &of_lse};
    if (dlse != nullptr) operands.push_back(dlse);
    return run(ops::AttentionGrad{attention, dlse != nullptr}, with(operands, masks));
  }

  ops::Attention attention;
  Value key, value, ids;
  std::vector<Value*> masks;
  Value out, lse;
};

void expect_gradients(const Values& a, const Values& b, const Values& whole, std::string_view how) {
  Value dquery = a[0];
  for (std::size_t e = 0; e < dquery.data.size(); ++e) dquery.data[e] += b[0].data[e];
  expect_close(dquery, whole[0].data, fmt::format("dquery {}", how));
  expect_close(whole[1], joined(a[1], b[1]), fmt::format("dkey {}", how));
  expect_close(whole[2], joined(a[2], b[2]), fmt::format("dvalue {}", how));
}

TEST(Parts, MergedAreTheWhole) {
  int saw_nothing = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Problem problem(seed);
    SCOPED_TRACE(fmt::format("{} {}", seed, ops::to_string(ops::Op(problem.attention))));
    const auto cut = static_cast<std::int64_t>(1 + seed * 7 % static_cast<std::uint64_t>(problem.length - 1));
    Part whole(problem, 0, problem.length);
    Part first(problem, 0, cut);
    Part second(problem, cut, problem.length);
    Values merged = run(ops::MergeAttention{}, {&first.out, &first.lse, &second.out, &second.lse});
    expect_close(merged[0], whole.out.data, "out");
    expect_close(merged[1], whole.lse.data, "lse");
    for (const float lse : second.lse.data) saw_nothing += std::isinf(lse) ? 1 : 0;

    // With a gradient of the log-sum too, through the merge.
    const Values wanted = whole.gradients(problem, problem.dout, whole.out, whole.lse, &problem.dlse);
    Values arrived =
        run(ops::MergeAttentionGrad{.of_lse = true}, {&problem.dout, &problem.dlse, &first.out, &first.lse, &second.out, &second.lse});
    expect_gradients(first.gradients(problem, arrived[0], first.out, first.lse, &arrived[1]),
                     second.gradients(problem, arrived[2], second.out, second.lse, &arrived[3]), wanted, "through the merge");

    // And from the whole's results, as a ring of ranks has them.
    const Values plain = whole.gradients(problem, problem.dout, whole.out, whole.lse, nullptr);
    expect_gradients(first.gradients(problem, problem.dout, merged[0], merged[1], nullptr),
                     second.gradients(problem, problem.dout, merged[0], merged[1], nullptr), plain, "from the whole");
    if (HasFailure()) return;
  }
  EXPECT_GT(saw_nothing, 100);
}

// Queries [l, 2l) against keys [0, l) are a block of the whole.
TEST(Parts, LaterQueriesSeeEarlierKeysByPosition) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    Problem problem(seed);
    SCOPED_TRACE(fmt::format("{} {}", seed, ops::to_string(ops::Op(problem.attention))));
    const std::int64_t half = problem.length / 2;
    Value query = rows_of(problem.query, half, problem.length);
    Value query_ids = rows_of(problem.segments, half, problem.length);
    Part first(problem, 0, half);  // all queries against the keys of the first half
    ops::Attention block = first.attention;
    block.first_query = half;
    const Values found = run(block, with({&query, &first.key, &first.value}, problem.masks(query_ids, first.ids)));
    expect_close(found[0], rows_of(first.out, half, problem.length).data, "out");
    const std::int64_t rows = problem.length - half;
    for (std::int64_t row = 0; row < found[1].type.shape.elements(); ++row) {
      const float expected = first.lse.data[static_cast<std::size_t>(row / rows * problem.length + half + row % rows)];
      const float lse = found[1].data[static_cast<std::size_t>(row)];
      ASSERT_TRUE(lse == expected || std::abs(lse - expected) <= 1e-5f) << row << ": " << lse << ", " << expected;
    }
  }
}

// Packed heads and separate ones are two ways to lay out the same.
TEST(Parts, SeparateIsPackedTakenApart) {
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    Problem problem(seed);
    const ops::Heads& heads = problem.attention.heads;
    SCOPED_TRACE(fmt::format("{} {}", seed, ops::to_string(ops::Op(problem.attention))));
    const std::int64_t rows = problem.query.type.shape.rows();
    Value packed({DType::f32, Shape{problem.query.type.shape[0], problem.length, heads.packed_width()}});
    const auto copy = [&](const Value& from, std::int64_t width, std::int64_t row, std::int64_t at, std::int64_t to) {
      std::copy_n(from.data.begin() + row * width + at, heads.dim, packed.data.begin() + row * heads.packed_width() + to);
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t head = 0; head < heads.query; ++head)
        copy(problem.query, heads.query * heads.dim, row, head * heads.dim, heads.query_offset(head));
      for (std::int64_t head = 0; head < heads.kv; ++head) {
        copy(problem.key, heads.kv * heads.dim, row, head * heads.dim, heads.key_offset(head));
        copy(problem.value, heads.kv * heads.dim, row, head * heads.dim, heads.value_offset(head));
      }
    }
    ops::Attention attention = problem.attention;
    attention.separate = false;
    attention.length = 0;
    std::vector<Value*> masks = problem.masks(problem.segments, problem.segments);
    if (attention.segmented) masks.erase(masks.begin());
    const Values expected = run(attention, with({&packed}, masks));
    const Part whole(problem, 0, problem.length);
    EXPECT_EQ(whole.out.data, expected[0].data);
    EXPECT_EQ(whole.lse.data, expected[1].data);
  }
}

}  // namespace
}  // namespace plimsoll::test
