// The page of a training: what really ran, beside what was predicted for it.
//
// One step of the run is traced. Its calls make the timeline; what the simulator says of the very plan, on this machine as it was
// measured, makes the other. Ranks of a class do the same, so the first of each class speaks for it.
#pragma once

#include <string>
#include <vector>

#include "io/file_system.h"
#include "observe/event.h"
#include "train/run.h"

namespace plimsoll::cli {

// How long steps took, for the page.
class StepSeconds final : public observe::Observer {
 public:
  void on(const observe::Event& event) override;

  // Without the first, which also touches fresh memory, and the traced second, where there are others; zero: none was made.
  double median() const;

 private:
  std::vector<double> seconds_;
};

// `step_seconds`: of a step that was not traced.
std::string train_page(io::FileSystem& file_system, const train::End& trained, double step_seconds);

}  // namespace plimsoll::cli
