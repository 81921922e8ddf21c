#include "ops/state.h"

#include "base/error.h"

namespace plimsoll::ops {

std::string_view name_of(State::Cut cut) {
  switch (cut) {
    case State::Cut::parameter: return "parameter";
    case State::Cut::own: return "own";
  }
  PLIMSOLL_CHECK(false, "a cut that has no name");
}

std::string_view name_of(State::Merge merge) {
  switch (merge) {
    case State::Merge::alike: return "alike";
    case State::Merge::sum: return "sum";
    case State::Merge::mean: return "mean";
    case State::Merge::first: return "first";
    case State::Merge::anew: return "anew";
  }
  PLIMSOLL_CHECK(false, "a merge that has no name");
}

std::string_view name_of(State::Written written) {
  switch (written) {
    case State::Written::update: return "update";
    case State::Written::forward: return "forward";
    case State::Written::backward: return "backward";
    case State::Written::program: return "program";
  }
  PLIMSOLL_CHECK(false, "a writer that has no name");
}

}  // namespace plimsoll::ops
