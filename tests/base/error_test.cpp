#include "base/error.h"

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

template <typename Call>
Error caught(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::other, "");
}

TEST(Error, CarriesKindExitCodeAndValues) {
  const Error input = caught([] { bad_input("run.json: \"{}\" is {}; expected at least {}", "layers", 0, 1); });
  EXPECT_EQ(input.kind(), ErrorKind::bad_input);
  EXPECT_EQ(input.exit_code(), 2);
  EXPECT_STREQ(input.what(), "run.json: \"layers\" is 0; expected at least 1");

  EXPECT_EQ(caught([] { not_legal("too big"); }).exit_code(), 3);
  EXPECT_EQ(caught([] { fail(ErrorKind::peer_lost, "rank {}", 3); }).exit_code(), 4);
  EXPECT_EQ(caught([] { fail(ErrorKind::other, "?"); }).exit_code(), 1);
}

TEST(CheckDeathTest, StopsWithPlaceConditionAndValues) {
  const int found = 3;
  EXPECT_DEATH(PLIMSOLL_CHECK(found == 4, "found {}", found), "broken invariant at .*error_test.cpp:[0-9]+: found == 4: found 3");
}

TEST(Check, EvaluatesOnceAndContinues) {
  int calls = 0;
  PLIMSOLL_CHECK(++calls == 1, "calls {}", calls);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace plimsoll::base
