// What bad input, or what is not legal, is answered with.
#pragma once

#include <string>

#include "base/error.h"

namespace plimsoll::tests {

// The message of the error that `action` must throw.
template <typename Action>
std::string refusal(Action&& action, base::ErrorKind kind = base::ErrorKind::bad_input) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.kind() == kind ? error.what() : "(another kind) " + std::string(error.what());
  }
  return "(no error)";
}

}  // namespace plimsoll::tests
