// packed_gemm and few_rows_gemm against sums in double: every element type, order and extra, odd sizes and sizes around the blocking,
// on every instruction set the machine has; and the promise that threads do not change a bit.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/gemm_blocking.h"
#include "kernels/cpu/packed_gemm.h"
#include "kernels_gemm/targets.h"

namespace plimsoll::kernels::cpu {
namespace {

using base::DType;
using ops::ActivationKind;

// Stored in an element type, known in double. Slack behind the last element is checked for stray writes.
class Values {
 public:
  Values(std::mt19937& random, std::int64_t count, DType dtype) : dtype_(dtype), count_(count) {
    bytes_.resize(static_cast<std::size_t>(count * base::size_of(dtype)) + kSlack, std::byte{0x5A});
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::int64_t i = 0; i < count; ++i) set(i, uniform(random));
  }
  void* data() { return bytes_.data(); }
  double at(std::int64_t index) const {
    return with_element(dtype_, [&](auto zero) {
      using T = decltype(zero);
      return static_cast<double>(to_f32(reinterpret_cast<const T*>(bytes_.data())[index]));
    });
  }
  void set(std::int64_t index, float value) {
    with_element(dtype_, [&](auto zero) {
      using T = decltype(zero);
      reinterpret_cast<T*>(bytes_.data())[index] = from_f32<T>(value);
    });
  }
  bool slack_untouched() const {
    for (std::size_t i = bytes_.size() - kSlack; i < bytes_.size(); ++i) {
      if (bytes_[i] != std::byte{0x5A}) return false;
    }
    return true;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kSlack = 64;
  DType dtype_;
  std::int64_t count_;
  std::vector<std::byte> bytes_;
};

struct Case {
  std::int64_t m, n, k;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false, bias = false;
  ActivationKind activation = ActivationKind::none;
  std::int64_t pad = 0;  // columns of each matrix that are not part of it
};

std::string describe(const Case& test) {
  return fmt::format("m {} n {} k {} {}{} {}{} -> {} accumulate {} bias {} activation {} pad {}", test.m, test.n, test.k,
                     base::name_of(test.a), test.a_transposed ? "^T" : "", base::name_of(test.b), test.b_transposed ? "^T" : "",
                     base::name_of(test.c), test.accumulate, test.bias, static_cast<int>(test.activation), test.pad);
}

double activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none: return x;
    case ActivationKind::gelu_tanh: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::relu: return x > 0 ? x : 0;
    case ActivationKind::silu: return x / (1 + std::exp(-x));
  }
  return x;
}

double unit_roundoff(DType dtype) { return dtype == DType::f32 ? 6e-8 : dtype == DType::bf16 ? 1.0 / 256 : 1.0 / 2048; }

struct Problem {
  Values a, b, c, bias, activated, before;
  PackedGemm gemm;

  Problem(const Case& test, std::mt19937& random)
      : a(random, (test.a_transposed ? test.k : test.m) * ((test.a_transposed ? test.m : test.k) + test.pad), test.a),
        b(random, (test.b_transposed ? test.n : test.k) * ((test.b_transposed ? test.k : test.n) + test.pad), test.b),
        c(random, test.m * (test.n + test.pad), test.c),
        bias(random, test.n, test.b),
        activated(random, test.m * (test.n + test.pad), test.c),
        before(c) {
    gemm = {.m = test.m, .n = test.n, .k = test.k};
    gemm.a = {a.data(), test.a, (test.a_transposed ? test.m : test.k) + test.pad, test.a_transposed};
    gemm.b = {b.data(), test.b, (test.b_transposed ? test.k : test.n) + test.pad, test.b_transposed};
    gemm.c = c.data();
    gemm.c_dtype = test.c;
    gemm.c_stride = test.n + test.pad;
    gemm.accumulate = test.accumulate;
    if (test.bias) {
      gemm.bias = bias.data();
      gemm.bias_dtype = test.b;
    }
    gemm.activation = test.activation;
    if (test.activation != ActivationKind::none) gemm.activated = activated.data();
  }

  void run(int threads, bool few = false) {
    const GemmSize size{gemm.m, gemm.n, gemm.k, gemm.c_dtype};
    const auto bytes = static_cast<std::size_t>(few ? few_rows_workspace(size) : packed_gemm_workspace(size, threads));
    constexpr std::size_t kGuard = 256;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + kGuard + 63) / 64 * 64));
    // NaN everywhere: a kernel that reads scratch it has not written shows.
    std::memset(memory, 0xFF, bytes);
    std::memset(memory + bytes, 0x77, kGuard);
    few ? few_rows_gemm(gemm, memory, threads) : packed_gemm(gemm, memory, threads);
    for (std::size_t i = 0; i < kGuard; ++i) ASSERT_EQ(memory[bytes + i], std::byte{0x77}) << "wrote behind its workspace";
    std::free(memory);
  }
};

void check(const Case& test, std::mt19937& random, int threads, bool few = false) {
  SCOPED_TRACE(describe(test));
  Problem problem(test, random);
  problem.run(threads, few);
  const auto at = [](const Values& v, const MatrixView& view, std::int64_t i, std::int64_t j) {
    return view.transposed ? v.at(j * view.stride + i) : v.at(i * view.stride + j);
  };
  const std::int64_t stride = problem.gemm.c_stride;
  for (std::int64_t i = 0; i < test.m; ++i) {
    for (std::int64_t j = 0; j < test.n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t p = 0; p < test.k; ++p) {
        const double term = at(problem.a, problem.gemm.a, i, p) * at(problem.b, problem.gemm.b, p, j);
        sum += term;
        size += std::abs(term);
      }
      if (test.accumulate) sum += problem.before.at(i * stride + j);
      if (test.bias) sum += problem.bias.at(j);
      const double allowed = 3e-7 * (size + 2) + unit_roundoff(test.c) * std::abs(sum) * 1.01;
      ASSERT_NEAR(problem.c.at(i * stride + j), sum, allowed) << "at " << i << ", " << j;
      if (test.activation == ActivationKind::none) continue;
      // Of what is stored, so that it can be made again from there.
      const double exact = activate(test.activation, problem.c.at(i * stride + j));
      ASSERT_NEAR(problem.activated.at(i * stride + j), exact, 2 * 3e-7 * (size + 2) + unit_roundoff(test.c) * std::abs(exact) * 1.01);
    }
    for (std::int64_t j = test.n; j < stride; ++j) ASSERT_EQ(problem.c.at(i * stride + j), problem.before.at(i * stride + j)) << "padding";
  }
  EXPECT_TRUE(problem.c.slack_untouched());
  EXPECT_TRUE(problem.activated.slack_untouched());
}

Case random_case(std::mt19937& random, std::int64_t largest) {
  const auto any = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  const auto dtype = [&] { return std::array{DType::f32, DType::bf16, DType::f16}[static_cast<std::size_t>(any(0, 2))]; };
  return {.m = any(1, largest),
          .n = any(1, largest),
          .k = any(1, largest),
          .a = dtype(),
          .b = dtype(),
          .c = dtype(),
          .a_transposed = any(0, 1) == 1,
          .b_transposed = any(0, 1) == 1,
          .accumulate = any(0, 1) == 1,
          .bias = any(0, 1) == 1,
          .activation = static_cast<ActivationKind>(any(0, 4)),
          .pad = any(0, 3) == 0 ? any(1, 5) : 0};
}

TEST(PackedGemm, AgreesWithDouble) {
  on_every_target([] {
    std::mt19937 random(7);
    for (int round = 0; round < 150 && !testing::Test::HasFatalFailure(); ++round) check(random_case(random, 70), random, 1 + round % 3);
  });
}

// More than one pass, group and block.
TEST(PackedGemm, AgreesWithDoubleBeyondItsBlocks) {
  std::mt19937 random(8);
  const auto over = [&](std::int64_t size) { return size + std::uniform_int_distribution<std::int64_t>(-3, 20)(random); };
  for (int round = 0; round < 12 && !testing::Test::HasFatalFailure(); ++round) {
    Case test = random_case(random, 40);
    switch (round % 3) {
      case 0: test.m = over(kBlockRows); break;
      case 1: test.n = over(6 * kGroupSlivers * kMaxTileColumns); break;
      default: test.k = over(2 * kPassDepth); break;
    }
    check(test, random, 2);
  }
}

TEST(FewRows, AgreesWithDouble) {
  on_every_target([] {
    std::mt19937 random(10);
    for (int round = 0; round < 60 && !testing::Test::HasFatalFailure(); ++round) {
      Case test = random_case(random, 150);
      test.m = 1 + round % kFewRows;
      test.a_transposed = test.accumulate = false;
      test.b_transposed = true;
      test.pad = 0;
      check(test, random, 1 + round % 3, true);
    }
  });
}

TEST(PackedGemm, GivesTheSameBitsForAnyNumberOfThreads) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    Case test = random_case(random, 150);
    if (round % 4 == 0) test.k += 2 * kPassDepth;
    SCOPED_TRACE(describe(test));
    Problem first(test, random);
    Problem second = first;
    second.gemm.a.data = second.a.data();
    second.gemm.b.data = second.b.data();
    second.gemm.c = second.c.data();
    if (test.bias) second.gemm.bias = second.bias.data();
    if (test.activation != ActivationKind::none) second.gemm.activated = second.activated.data();
    first.run(1);
    second.run(2 + round % 4);
    ASSERT_EQ(first.c.bytes(), second.c.bytes());
    ASSERT_EQ(first.activated.bytes(), second.activated.bytes());
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
