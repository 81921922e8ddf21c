// All that is wrong with a file at once: what one key is refused for does not hide the next one's mistake.
//
//   problems.attempt([&] { read_one(field, value); });   // for each
//   problems.raise();
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::config {

class Problems {
 public:
  // Notes bad input; other errors pass.
  template <typename Step>
  void attempt(Step&& step) {
    try {
      std::forward<Step>(step)();
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::bad_input) throw;
      found_.emplace_back(error.what());
    }
    if (found_.size() >= kMost) raise();
  }

  std::size_t size() const { return found_.size(); }

  // Throws what was noted: one problem as it is, several as a list with one a line.
  void raise() const {
    if (found_.empty()) return;
    if (found_.size() == 1) throw base::Error(base::ErrorKind::bad_input, found_.front());
    base::bad_input("found {}{} mistakes:\n  {}", found_.size(), found_.size() >= kMost ? " or more" : "", fmt::join(found_, "\n  "));
  }

 private:
  static constexpr std::size_t kMost = 20;  // a file with more of them is another kind of file

  std::vector<std::string> found_;
};

}  // namespace plimsoll::config
