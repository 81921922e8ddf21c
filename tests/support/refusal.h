// What bad input is answered with.
#pragma once

#include <string>

#include "base/error.h"

namespace plimsoll::tests {

// The message of the bad_input error that `action` must throw.
template <typename Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.kind() == base::ErrorKind::bad_input ? error.what() : "(another kind) " + std::string(error.what());
  }
  return "(no error)";
}

}  // namespace plimsoll::tests
