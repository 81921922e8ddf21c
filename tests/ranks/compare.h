// How the outcomes of two layouts are compared.
#pragma once

#include <gtest/gtest.h>

#include "ranks/layouts.h"

namespace plimsoll::ranks {

inline double tolerance(model::Precision precision) { return precision == model::Precision::f32 ? 2e-5 : 2e-2; }

inline void expect_close(const Outcome& found, const Outcome& expected, double limit) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], limit * expected.losses[step]) << "loss of step " << step + 1;
    EXPECT_NEAR(found.norms[step], expected.norms[step], 10 * limit * expected.norms[step]) << "norm of step " << step + 1;
  }
  EXPECT_NEAR(found.evaluation, expected.evaluation, limit * expected.evaluation);
}

inline void expect_same_bits(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.evaluation, expected.evaluation);
  for (const auto& [name, values] : expected.parameters) EXPECT_EQ(found.parameters.at(name), values) << name;
}

}  // namespace plimsoll::ranks
