// The message of the error that a call ends with; every error about a run file must be of the bad_input kind.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll::config {

template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace plimsoll::config
